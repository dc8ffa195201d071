package millrace;

import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.zone.ZoneRules;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

import com.fasterxml.jackson.databind.JsonNode;

/**
 * The zones that times of one input can name. `stream/config/zones.py` defines the abbreviations;
 * Java's own short ids are not used, because for Java BST is Bangladesh.
 */
final class TimeZones {
  /** A longer word is not an abbreviation. */
  static final int SHORT_MAX = 5;

  private static final Set REGIONS = ZoneId.getAvailableZoneIds();

  /** The rules of the input's zone; null for UTC. */
  final ZoneRules own;
  /** By abbreviation: an Integer of seconds, or ZoneRules. */
  private final Map known = new HashMap();

  TimeZones(JsonNode spec) {
    String tz = spec.get("tz").asText();
    own = tz.equals("UTC") ? null : ZoneId.of(tz).getRules();
    for (Iterator names = spec.get("zones").fieldNames(); names.hasNext(); ) {
      String name = (String) names.next();
      ZoneId zone = ZoneId.of(spec.get("zones").get(name).asText());
      known.put(name, of(zone));
    }
  }

  private static Object of(ZoneId zone) {
    return zone instanceof ZoneOffset
        ? (Object) Integer.valueOf(((ZoneOffset) zone).getTotalSeconds())
        : zone.getRules();
  }

  /** Set the zone of the fields; false if the name is unknown or ambiguous. */
  boolean take(String name, TimeFields fields) {
    Object found =
        name.length() <= SHORT_MAX ? known.get(name.toUpperCase(Locale.ROOT)) : null;
    if (found == null && name.length() > 3 && REGIONS.contains(name)) {
      found = ZoneId.of(name).getRules();
    }
    if (found == null) {
      return false;
    }
    if (found instanceof Integer) {
      fields.setOffset(((Integer) found).intValue());
    } else {
      fields.setRules((ZoneRules) found);
    }
    return true;
  }
}

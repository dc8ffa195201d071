package millrace;

import java.util.HashMap;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads texts as times. `stream/parse/times.py` writes the specification as JSON: the input's zone,
 * the zones that texts can name, and layouts; without layouts the common formats are read.
 */
public final class Times {
  private static final int OCTETS_MAX = 512;
  /** How many specifications are remembered; each is found by the object that holds it. */
  private static final int REMEMBERED = 64;

  private static final Map known = new HashMap();
  private static volatile Times[] remembered = new Times[0];

  private final UTF8String spec;
  private final TimeZones zones;
  private final String[] layouts;
  private final boolean isPicky;

  private Times(UTF8String spec, TimeZones zones, String[] layouts, boolean isPicky) {
    this.spec = spec;
    this.zones = zones;
    this.layouts = layouts;
    this.isPicky = isPicky;
  }

  /** Return microseconds since 1970, null if the text is no time. `arrival` is the record's. */
  public static Long time(UTF8String text, UTF8String spec, long arrival) throws Exception {
    if (text.numBytes() > OCTETS_MAX) {
      return null;
    }
    Times times = of(spec);
    byte[] octets = text.getBytes();
    for (int place = 0; place < Math.max(1, times.layouts.length); place++) {
      TimeFields found = times.read(octets, place);
      long micros = found == null ? TimeFields.NONE : found.micros(times.zones.own, arrival);
      if (micros != TimeFields.NONE) {
        return Long.valueOf(micros);
      }
    }
    return null;
  }

  /** Return why a text is no time, if the reason has a name; else null. */
  public static UTF8String fault(UTF8String text, UTF8String spec) throws Exception {
    Times times = of(spec);
    if (text.numBytes() > OCTETS_MAX) {
      return null;
    }
    byte[] octets = text.getBytes();
    for (int place = 0; place < Math.max(1, times.layouts.length); place++) {
      TimeFields found = times.read(octets, place);
      if (found != null && found.fault != null) {
        return UTF8String.fromString(found.fault);
      }
    }
    return null;
  }

  /**
   * Return the fields of a text by one of the layouts, or by the common formats; null for none.
   */
  private TimeFields read(byte[] octets, int place) {
    if (layouts.length == 0) {
      TimeText text = new TimeText(octets, zones, isPicky);
      return text.read() ? text.fields : null;
    }
    TimeLayout layout = new TimeLayout(octets, zones, layouts[place]);
    return layout.read() ? layout.fields : null;
  }

  private static Times of(UTF8String spec) throws Exception {
    Times[] some = remembered;
    for (int at = 0; at < some.length; at++) {
      if (some[at].spec == spec) {
        return some[at];
      }
    }
    return remember(spec);
  }

  private static synchronized Times remember(UTF8String spec) throws Exception {
    String text = spec.toString();
    Times found = (Times) known.get(text);
    if (found == null) {
      found = read(spec, text);
      known.put(text, found);
    }
    Times own = new Times(spec, found.zones, found.layouts, found.isPicky);
    Times[] before = remembered;
    int kept = Math.min(before.length, REMEMBERED - 1);
    Times[] after = new Times[kept + 1];
    after[0] = own;
    System.arraycopy(before, 0, after, 1, kept);
    remembered = after;
    return own;
  }

  private static Times read(UTF8String spec, String text) throws Exception {
    JsonNode json = new ObjectMapper().readTree(text);
    String[] layouts = new String[json.get("layouts").size()];
    for (int at = 0; at < layouts.length; at++) {
      layouts[at] = ((JsonNode) json.get("layouts").get(at)).asText();
    }
    return new Times(spec, new TimeZones(json), layouts, json.get("picky").asBoolean());
  }
}

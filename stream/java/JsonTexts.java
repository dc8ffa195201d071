package millrace;

import java.io.IOException;
import java.io.Serializable;
import java.io.StringWriter;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads the texts at some paths of a JSON document in one pass; `stream/parse/json_paths.py` makes
 * the paths. The result of a path never depends on the other paths:
 *
 * <ul>
 *   <li>Keys are compared exactly, with case. The last of equal keys is used.
 *   <li>A scalar's text is spelled as in the document; an object or array is written without
 *       blanks. A null, or a place that the document lacks, has no text.
 *   <li>A path can lead through a text that is itself a whole JSON document of the right shape.
 * </ul>
 */
public final class JsonTexts implements Serializable {
  private static final int NONE = -1;
  private static final JsonFactory FACTORY =
      new JsonFactory()
          .enable(JsonParser.Feature.ALLOW_SINGLE_QUOTES)
          // A raw tab within a text is accepted, although JSON requires an escape.
          .enable(JsonParser.Feature.ALLOW_UNQUOTED_CONTROL_CHARS)
          // Lines can have any number of different keys, which would stay in memory.
          .disable(JsonFactory.Feature.INTERN_FIELD_NAMES);

  private final String paths;
  private final int count;
  private final Place root = new Place();

  /** `paths` is a JSON array of paths, which are arrays of keys and of positions from 0. */
  public JsonTexts(String paths) throws IOException {
    this.paths = paths;
    JsonNode all = new ObjectMapper().readTree(paths);
    count = all.size();
    root.below = new HashMap();
    for (int path = 0; path < count; path++) {
      Place place = root;
      JsonNode steps = (JsonNode) all.get(path);
      for (int step = 0; step < steps.size(); step++) {
        place = place.step((JsonNode) steps.get(step));
      }
      place.text = path;
    }
  }

  /** Return the texts of a line, in the order of the paths; NULL unless it is one JSON object. */
  public static ArrayData texts(UTF8String line, JsonTexts wanted) {
    Object[] texts = new Object[wanted.count];
    return read(line.toString(), wanted.root, texts) ? new GenericArrayData(texts) : null;
  }

  /** Read a whole document of the shape for a place; false for any other text. */
  private static boolean read(String document, Place place, Object[] texts) {
    try {
      JsonParser parser = FACTORY.createParser(document);
      try {
        if (!place.leadsThrough(parser.nextToken())) {
          return false;
        }
        readWithin(parser, place, texts);
        return parser.nextToken() == null;
      } finally {
        parser.close();
      }
    } catch (IOException error) {
      return false;
    }
  }

  /** Read the object or array that begins at the parser's token. */
  private static void readWithin(JsonParser parser, Place place, Object[] texts)
      throws IOException {
    boolean isArray = parser.currentToken() == JsonToken.START_ARRAY;
    JsonToken end = isArray ? JsonToken.END_ARRAY : JsonToken.END_OBJECT;
    int position = 0;
    for (JsonToken token = parser.nextToken(); token != end; token = parser.nextToken()) {
      Object next;
      if (isArray) {
        next = place.elements.get(Integer.valueOf(position++));
      } else {
        next = place.below.get(parser.currentName());
        token = parser.nextToken();
      }
      if (next == null) {
        parser.skipChildren();
      } else {
        readValue(parser, token, (Place) next, texts);
      }
    }
  }

  private static void readValue(JsonParser parser, JsonToken token, Place place, Object[] texts)
      throws IOException {
    place.clear(texts);
    if (place.text == NONE && place.leadsThrough(token)) {
      readWithin(parser, place, texts);
    } else if (token == JsonToken.VALUE_NULL || (token.isStructStart() && place.text == NONE)) {
      parser.skipChildren();
    } else {
      String text = token.isStructStart() ? written(parser) : parser.getText();
      if (place.text != NONE) {
        texts[place.text] = UTF8String.fromString(text);
      }
      if (token.isStructStart() || token == JsonToken.VALUE_STRING) {
        readText(text, place, texts);
      }
    }
  }

  /** Read the content of a text if it is a document. A broken document gives nothing. */
  private static void readText(String text, Place place, Object[] texts) {
    int first = 0;
    while (first < text.length() && text.charAt(first) <= ' ') {
      first++;
    }
    char opening = first < text.length() ? text.charAt(first) : ' ';
    if ((opening == '{' && place.below != null) || (opening == '[' && place.elements != null)) {
      Object[] own = new Object[texts.length];
      if (read(text, place, own)) {
        for (int at = 0; at < own.length; at++) {
          texts[at] = own[at] == null ? texts[at] : own[at];
        }
      }
    }
  }

  /** Return the object or array at the parser's token without blanks; numbers are unchanged. */
  private static String written(JsonParser parser) throws IOException {
    StringWriter written = new StringWriter();
    JsonGenerator generator = FACTORY.createGenerator(written);
    int depth = 0;
    for (JsonToken token = parser.currentToken(); ; token = parser.nextToken()) {
      if (token.isNumeric()) {
        generator.writeNumber(parser.getText());
      } else {
        generator.copyCurrentEvent(parser);
      }
      if (token.isStructStart()) {
        depth++;
      } else if (token.isStructEnd()) {
        depth--;
      }
      if (depth == 0) {
        generator.close();
        return written.toString();
      }
    }
  }

  public boolean equals(Object other) {
    return other instanceof JsonTexts && ((JsonTexts) other).paths.equals(paths);
  }

  public int hashCode() {
    return paths.hashCode();
  }

  public String toString() {
    return paths;
  }

  /** A place in a document where a path ends, or that it passes. */
  private static final class Place implements Serializable {
    /** The number of the path's text if a path ends here, or NONE. */
    int text = NONE;
    /** The next places by key, and by position; null if no path continues that way. */
    Map below;
    Map elements;

    Place step(JsonNode step) {
      if (step.isInt()) {
        elements = elements == null ? new HashMap() : elements;
        return in(elements, Integer.valueOf(step.intValue()));
      }
      below = below == null ? new HashMap() : below;
      return in(below, step.textValue());
    }

    private static Place in(Map places, Object step) {
      Place next = (Place) places.get(step);
      if (next == null) {
        next = new Place();
        places.put(step, next);
      }
      return next;
    }

    boolean leadsThrough(JsonToken token) {
      return (token == JsonToken.START_OBJECT && below != null)
          || (token == JsonToken.START_ARRAY && elements != null);
    }

    /** Drop the texts that an earlier equal key has given. */
    void clear(Object[] texts) {
      if (text != NONE) {
        texts[text] = null;
      }
      clearAll(below, texts);
      clearAll(elements, texts);
    }

    private static void clearAll(Map places, Object[] texts) {
      if (places != null) {
        for (Iterator each = places.values().iterator(); each.hasNext(); ) {
          ((Place) each.next()).clear(texts);
        }
      }
    }
  }
}

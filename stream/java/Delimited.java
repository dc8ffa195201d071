package millrace;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Splits lines of delimited fields (CSV, TSV). Spark's own parser refuses lines with quotes in
 * unquoted fields, and knows only one way to write a quote within quotes.
 *
 * <p>A field that begins with a quote ends at the next quote, after which only blanks are allowed.
 * A quote within it is doubled, or follows the escape character. Quotes elsewhere are literal.
 */
public final class Delimited {
  /** A line with more fields gives NULL, because it is no table and would need much memory. */
  private static final int FIELDS_MAX = 20480;

  private static final int NONE = -1;
  private static final UTF8String BACKSLASH = UTF8String.fromString("\\");

  private final Object base;
  private final long offset;
  private final int length;
  private final int delimiter;
  private final int quote;
  private final int escape;
  private int at = 0;

  private Delimited(UTF8String line, int delimiter, int quote, int escape) {
    base = line.getBaseObject();
    offset = line.getBaseOffset();
    length = end(line);
    this.delimiter = delimiter;
    this.quote = quote;
    this.escape = escape;
  }

  /**
   * Return the fields of a line; NULL if its quotes are not balanced. `quote` and `escape` are one
   * ASCII character or empty. With an empty `escape`, the backslash is tried for a line that
   * doubled quotes do not explain.
   */
  public static ArrayData fields(
      UTF8String line, UTF8String delimiter, UTF8String quote, UTF8String escape) {
    int quoted = character(quote);
    int escaped = character(escape);
    ArrayData found = new Delimited(line, delimiter.getByte(0), quoted, escaped).all();
    if (found != null || escaped != NONE || quoted == NONE || line.indexOf(BACKSLASH, 0) < 0) {
      return found;
    }
    return new Delimited(line, delimiter.getByte(0), quoted, '\\').all();
  }

  private static int character(UTF8String text) {
    if (text.numBytes() == 0) {
      return NONE;
    }
    return text.getByte(0);
  }

  /** Return the end of the line without the carriage return that Windows writes. */
  private static int end(UTF8String line) {
    int length = line.numBytes();
    return length > 0 && line.getByte(length - 1) == '\r' ? length - 1 : length;
  }

  private int octet(int place) {
    return Platform.getByte(base, offset + place);
  }

  private ArrayData all() {
    List found = new ArrayList();
    boolean isOver = false;
    while (!isOver) {
      UTF8String field = field();
      if (field == null || found.size() == FIELDS_MAX) {
        return null;
      }
      found.add(field);
      isOver = at >= length;
      // A field follows each delimiter, even at the end of the line.
      at++;
    }
    return new GenericArrayData(found.toArray());
  }

  /** Return the field that begins here; afterwards `at` is at its delimiter, or at the end. */
  private UTF8String field() {
    int begin = at;
    while (at < length && octet(at) == ' ' && delimiter != ' ') {
      at++;
    }
    if (at < length && octet(at) == quote) {
      at++;
      return quoted();
    }
    at = begin;
    boolean hasEscape = false;
    while (at < length && octet(at) != delimiter) {
      if (octet(at) == escape && quote == NONE && at + 1 < length) {
        hasEscape = true;
        at++;
      }
      at++;
    }
    return hasEscape ? unescaped(begin, at) : text(begin, at);
  }

  /** Return the rest of a field after its first quote. */
  private UTF8String quoted() {
    int begin = at;
    boolean hasEscape = false;
    while (at < length) {
      int octet = octet(at);
      boolean hasNext = at + 1 < length;
      if (octet == escape && escape != quote && hasNext) {
        hasEscape = true;
        at += 2;
      } else if (octet != quote) {
        at++;
      } else if (hasNext && octet(at + 1) == quote) {
        hasEscape = true;
        at += 2;
      } else {
        int end = at;
        at++;
        while (at < length && octet(at) == ' ' && delimiter != ' ') {
          at++;
        }
        if (at < length && octet(at) != delimiter) {
          return null;
        }
        return hasEscape ? unescaped(begin, end) : text(begin, end);
      }
    }
    return null;
  }

  private UTF8String text(int begin, int end) {
    return UTF8String.fromAddress(base, offset + begin, end - begin);
  }

  /** Return a text without the escapes before quotes, delimiters and escapes. */
  private UTF8String unescaped(int begin, int end) {
    byte[] made = new byte[end - begin];
    int size = 0;
    for (int place = begin; place < end; place++) {
      int octet = octet(place);
      int next = NONE;
      if (place + 1 < end) {
        next = octet(place + 1);
      }
      boolean isEscape =
          octet == escape && (next == quote || next == delimiter || next == escape)
              || octet == quote && next == quote;
      if (isEscape && next != NONE) {
        place++;
        octet = next;
      }
      made[size++] = (byte) octet;
    }
    return UTF8String.fromBytes(made, 0, size);
  }
}

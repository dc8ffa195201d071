package millrace;

import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Splits lines of ArcSight's Common Event Format, `CEF:0|vendor|product|version|class|name|
 * severity|key=value key=value`, usually behind a syslog header.
 */
public final class Cef {
  /** The texts of a header, with those before and after it. */
  private static final int TEXTS = 9;

  private static final String PREFIX = "CEF:";

  private Cef() {}

  /**
   * Return the text before `CEF:`, version of the format, vendor, product, version, class, name,
   * severity and extension, with the header's escapes resolved; NULL for other lines.
   */
  public static ArrayData header(UTF8String line) {
    String text = line.toString();
    int begin = text.indexOf(PREFIX);
    if (begin < 0 || begin > 0 && text.charAt(begin - 1) != ' ') {
      return null;
    }
    Object[] texts = new Object[TEXTS];
    texts[0] = UTF8String.fromString(text.substring(0, begin).trim());
    int at = begin + PREFIX.length();
    StringBuilder field = new StringBuilder();
    int found = 1;
    while (at < text.length() && found < TEXTS - 1) {
      char here = text.charAt(at++);
      if (here == '\\' && at < text.length() && isEscaped(text.charAt(at))) {
        field.append(text.charAt(at++));
      } else if (here == '|') {
        texts[found++] = UTF8String.fromString(field.toString());
        field.setLength(0);
      } else {
        field.append(here);
      }
    }
    if (found == TEXTS - 2) {
      // Without an extension the bar after the severity can be missing too.
      texts[found++] = UTF8String.fromString(field.toString().trim());
    }
    if (found < TEXTS - 1) {
      return null;
    }
    texts[found] = UTF8String.fromString(text.substring(at));
    return new GenericArrayData(texts);
  }

  private static boolean isEscaped(char next) {
    return next == '|' || next == '\\';
  }

  /** Return the value of a key in an extension, with escapes resolved; NULL if it is missing. */
  public static UTF8String value(UTF8String extension, UTF8String key) {
    String text = extension.toString();
    String head = key.toString() + "=";
    int begin = text.startsWith(head) ? 0 : text.indexOf(" " + head) + 1;
    if (begin == 0 && !text.startsWith(head)) {
      return null;
    }
    int from = begin + head.length();
    return UTF8String.fromString(unescaped(text.substring(from, end(text, from)).trim()));
  }

  /**
   * Return the end of a value. It can contain blanks, so it ends before the word in front of the
   * next unescaped equals sign.
   */
  private static int end(String text, int from) {
    int word = from;
    for (int at = from; at < text.length(); at++) {
      char here = text.charAt(at);
      if (here == '\\') {
        at++;
      } else if (here == ' ') {
        word = at + 1;
      } else if (here == '=' && word > from && isKey(text, word, at)) {
        return word - 1;
      }
    }
    return text.length();
  }

  private static boolean isKey(String text, int begin, int end) {
    for (int at = begin; at < end; at++) {
      char here = text.charAt(at);
      if (!Character.isLetterOrDigit(here) && "_.-[]".indexOf(here) < 0) {
        return false;
      }
    }
    return end > begin;
  }

  private static String unescaped(String text) {
    if (text.indexOf('\\') < 0) {
      return text;
    }
    StringBuilder made = new StringBuilder();
    for (int at = 0; at < text.length(); at++) {
      char here = text.charAt(at);
      if (here == '\\' && at + 1 < text.length()) {
        char next = text.charAt(++at);
        if (next == 'n' || next == 'r') {
          made.append(next == 'n' ? '\n' : '\r');
        } else if (next == '=' || next == '\\' || next == '|') {
          made.append(next);
        } else {
          made.append(here).append(next);
        }
      } else {
        made.append(here);
      }
    }
    return made.toString();
  }
}

package millrace;

import org.apache.spark.unsafe.types.UTF8String;

/**
 * Limits for expressions whose result grows with a number: a line can contain any number, and a
 * text of two thousand million characters ends the JVM. All methods raise if a limit is exceeded,
 * and otherwise return their argument.
 */
public final class Limits {
  /** The most characters of a text, or elements of an array; lines are a megabyte by default. */
  static final int MADE_MAX = 4 << 20;

  private Limits() {}

  /** Check a number of characters or elements. */
  public static int size(int wanted) {
    if (wanted > MADE_MAX) {
      throw new IllegalArgumentException(wanted + " is more than " + MADE_MAX);
    }
    return wanted;
  }

  /** Check how often a text is repeated. */
  public static int times(UTF8String text, int wanted) {
    if ((long) text.numBytes() * wanted > MADE_MAX) {
      throw new IllegalArgumentException("a text of more than " + MADE_MAX + " bytes");
    }
    return wanted;
  }

  /** Check a format of java.util.Formatter, which contains widths and precisions. */
  public static UTF8String format(UTF8String format) {
    long number = 0;
    byte[] octets = format.getBytes();
    for (int at = 0; at < octets.length; at++) {
      number = octets[at] >= '0' && octets[at] <= '9' ? number * 10 + octets[at] - '0' : 0;
      if (number > MADE_MAX) {
        throw new IllegalArgumentException("a format of more than " + MADE_MAX + " characters");
      }
    }
    return format;
  }
}

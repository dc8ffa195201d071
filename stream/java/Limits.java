package millrace;

import org.apache.spark.unsafe.types.UTF8String;

/**
 * Limits of what an expression may make of one line where a number says how much: a line can hold
 * any number, and a text of two thousand million characters ends the JVM. All raise where a limit
 * is passed, and else give back what they were given.
 */
public final class Limits {
  /** So many characters of a text, or elements of an array; lines are a megabyte by default. */
  static final int MADE_MAX = 4 << 20;

  private Limits() {}

  /** How many characters or elements are asked for. */
  public static int size(int wanted) {
    if (wanted > MADE_MAX) {
      throw new IllegalArgumentException(wanted + " is more than " + MADE_MAX);
    }
    return wanted;
  }

  /** How often a text is repeated. */
  public static int times(UTF8String text, int wanted) {
    if ((long) text.numBytes() * wanted > MADE_MAX) {
      throw new IllegalArgumentException("a text of more than " + MADE_MAX + " bytes");
    }
    return wanted;
  }

  /** A format of java.util.Formatter, whose widths and precisions are numbers in it. */
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

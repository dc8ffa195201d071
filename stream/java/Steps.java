package millrace;

/**
 * A text that counts how often a matcher reads it, and raises if that is too often. Java's matcher
 * tries all ways to match, which can double with every character, and it cannot be cancelled.
 *
 * <p>With a usual pattern the reads grow with the text, by some dozens per character. A short text
 * can be read READS_MIN times, which takes some milliseconds.
 */
final class Steps implements CharSequence {
  static final int READS_MIN = 1_000_000;
  static final int READS_PER_CHARACTER = 64;

  private final String text;
  private long left;

  Steps(String text) {
    this.text = text;
    left = READS_MIN + (long) READS_PER_CHARACTER * text.length();
  }

  public char charAt(int at) {
    if (--left < 0) {
      throw TooMany.ONE;
    }
    return text.charAt(at);
  }

  public int length() {
    return text.length();
  }

  public CharSequence subSequence(int from, int to) {
    return text.substring(from, to);
  }

  public String toString() {
    return text;
  }

  /**
   * The pattern needs too many steps for the line. Without a trace, which costs more than the
   * match.
   */
  static final class TooMany extends RuntimeException {
    static final TooMany ONE = new TooMany();

    private TooMany() {
      super("a pattern takes too many steps on this line", null, false, false);
    }
  }
}

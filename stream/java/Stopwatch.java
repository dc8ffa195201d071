package millrace;

/**
 * How long a task reads, judges and folds its lines.
 *
 * <p>Reading, judging and folding a line take turns in one loop. A look at the clock takes as long as
 * a small part of a line does, so after the first lines only each sixteenth is timed and stands for
 * as many; what remains of the whole time is reading.
 */
final class Stopwatch {
  private static final long ALL_UP_TO = 64;
  private static final long EVERY = 16;

  private final long began = System.nanoTime();
  private long judging = 0;
  private long folding = 0;
  private long lines = 0;
  private long read = 0;

  /** Whether the next line is to be timed. */
  boolean isDue() {
    long line = lines++;
    return line < ALL_UP_TO || line % EVERY == 0;
  }

  /** A timed line was judged between the first two of these moments, then folded until the last. */
  void line(long before, long between, long after) {
    long weight = lines > ALL_UP_TO ? EVERY : 1;
    judging += weight * (between - before);
    folding += weight * (after - between);
  }

  /** All lines are there: what remains is folding. */
  void hasRead() {
    long passed = System.nanoTime() - began;
    // The timed lines may have been slower than those that they stand for.
    double share = Math.min(1.0, (double) passed / Math.max(1, judging + folding));
    judging = (long) (judging * share);
    folding = (long) (folding * share);
    read = passed - judging - folding;
  }

  /** The frame of a task that is done: nanoseconds of reading, judging and folding. */
  byte[] frame(int kind) {
    Octets frame = new Octets();
    frame.octet(kind);
    frame.eightOctets(read);
    frame.eightOctets(judging);
    frame.eightOctets(System.nanoTime() - began - read - judging);
    return frame.copy();
  }

  /** The frame of a task of the second stage: nanoseconds of making text of cells. */
  static byte[] text(int kind, long nanos) {
    Octets frame = new Octets();
    frame.octet(kind);
    frame.eightOctets(nanos);
    return frame.copy();
  }
}

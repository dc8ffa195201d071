package millrace;

/**
 * Measures how long a task reads, judges and folds its lines.
 *
 * <p>Reading, judging and folding alternate in one loop. Reading the clock costs a small part of a
 * line's time, so after the first lines only each sixteenth is timed, and counts sixteen times. The
 * rest of the total time is reading.
 */
final class Stopwatch {
  private static final long ALL_UP_TO = 64;
  private static final long EVERY = 16;

  private final long began = System.nanoTime();
  private long judging = 0;
  private long folding = 0;
  private long lines = 0;
  private long read = 0;

  /** Tell whether to time the next line. */
  boolean isDue() {
    long line = lines++;
    return line < ALL_UP_TO || line % EVERY == 0;
  }

  /** Note a timed line: judged between the first two moments, then folded until the last. */
  void line(long before, long between, long after) {
    long weight = lines > ALL_UP_TO ? EVERY : 1;
    judging += weight * (between - before);
    folding += weight * (after - between);
  }

  /** Note that all lines were read: the remaining time is folding. */
  void hasRead() {
    long passed = System.nanoTime() - began;
    // The timed lines may have been slower than the lines they represent.
    double share = Math.min(1.0, (double) passed / Math.max(1, judging + folding));
    judging = (long) (judging * share);
    folding = (long) (folding * share);
    read = passed - judging - folding;
  }

  /** Return the frame of a finished task: nanoseconds of reading, judging and folding. */
  byte[] frame(int kind) {
    Octets frame = new Octets();
    frame.octet(kind);
    frame.eightOctets(read);
    frame.eightOctets(judging);
    frame.eightOctets(System.nanoTime() - began - read - judging);
    return frame.copy();
  }

  /** Return the frame of a task of the second stage: nanoseconds of making text of cells. */
  static byte[] text(int kind, long nanos) {
    Octets frame = new Octets();
    frame.octet(kind);
    frame.eightOctets(nanos);
    return frame.copy();
  }
}

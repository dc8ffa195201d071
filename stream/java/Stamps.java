package millrace;

import java.util.Arrays;

/**
 * When the records of some lines were stamped, as a histogram that becomes coarser and not larger:
 * whoever counts lines of a backlog keeps no more than whoever counts those of a moment.
 *
 * <p>The collector stamps a batch of lines when it hands it over, so that lines which follow each
 * other mostly stand in one slot.
 */
final class Stamps {
  /** How many slots there are, a power of two: a slot's number finds its place by its last bits. */
  private static final int SLOTS = 64;

  /** A slot is 1,024 microseconds wide at first. */
  private static final int WIDTH_BITS_LEAST = 10;

  private final long[] counts = new long[SLOTS];
  private int widthBits = WIDTH_BITS_LEAST;
  /** Numbers of the first and the last slot that may hold a line; at first there is none. */
  private long low = 0;
  private long high = -1;

  /** Counts a line whose record was stamped so many microseconds after 1970. */
  void add(long micros) {
    long slot = micros >> widthBits;
    if (slot < low || slot > high) {
      reach(slot);
      slot = micros >> widthBits;
    }
    counts[place(slot)]++;
  }

  /** Let there be a slot of this number, or of what becomes of it where slots become wider. */
  private void reach(long slot) {
    if (high < low) {
      low = slot;
      high = slot;
      return;
    }
    long first = Math.min(low, slot);
    long last = Math.max(high, slot);
    while (last - first >= SLOTS) {
      widen();
      first >>= 1;
      last >>= 1;
    }
    low = first;
    high = last;
  }

  private void widen() {
    long[] narrow = Arrays.copyOf(counts, SLOTS);
    Arrays.fill(counts, 0);
    for (long slot = low; slot <= high; slot++) {
      counts[place(slot >> 1)] += narrow[place(slot)];
    }
    widthBits++;
    low >>= 1;
    high >>= 1;
  }

  private static int place(long slot) {
    return (int) (slot & (SLOTS - 1));
  }

  /** For Python: the number of the first slot, how wide each is, as bits, and their lines. */
  Object[] told() {
    long[] lines = new long[(int) (high - low + 1)];
    for (int at = 0; at < lines.length; at++) {
      lines[at] = counts[place(low + at)];
    }
    return new Object[] {Long.valueOf(low), Integer.valueOf(widthBits), lines};
  }
}

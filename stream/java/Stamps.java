package millrace;

import java.util.Arrays;

/**
 * The time stamps of some lines' records, as a histogram that becomes coarser instead of larger. So
 * the stamps of a backlog take no more memory than those of a moment.
 *
 * <p>The collector stamps a batch of lines when it sends it, so consecutive lines mostly have the
 * same slot.
 */
final class Stamps {
  /** The number of slots, a power of two: the last bits of a slot's number are its index. */
  private static final int SLOTS = 64;

  /** The first width of a slot is 1,024 microseconds. */
  private static final int WIDTH_BITS_LEAST = 10;

  private final long[] counts = new long[SLOTS];
  private int widthBits = WIDTH_BITS_LEAST;
  /** The numbers of the first and last slot that can hold a line; at first there is none. */
  private long low = 0;
  private long high = -1;

  /** Count a line whose record was stamped this many microseconds after 1970. */
  void add(long micros) {
    long slot = micros >> widthBits;
    if (slot < low || slot > high) {
      reach(slot);
      slot = micros >> widthBits;
    }
    counts[place(slot)]++;
  }

  /** Make room for a slot of this number; slots may become wider for it. */
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

  /**
   * Return for Python: the number of the first slot, the width in bits, and the lines per slot.
   */
  Object[] told() {
    long[] lines = new long[(int) (high - low + 1)];
    for (int at = 0; at < lines.length; at++) {
      lines[at] = counts[place(low + at)];
    }
    return new Object[] {Long.valueOf(low), Integer.valueOf(widthBits), lines};
  }
}

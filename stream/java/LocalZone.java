package millrace;

import com.fasterxml.jackson.databind.JsonNode;

/**
 * Computes starts of windows by a local clock from a table of offsets. `sinks/local_time.py` makes
 * the table and defines the windows.
 */
final class LocalZone {
  private static final int HOUR = 3_600;

  private final long[] begins;
  private final long[] offsets;

  LocalZone(JsonNode json) {
    begins = numbers(json.get("begins"));
    offsets = numbers(json.get("offsets"));
  }

  private static long[] numbers(JsonNode json) {
    long[] numbers = new long[json.size()];
    for (int at = 0; at < numbers.length; at++) {
      numbers[at] = ((JsonNode) json.get(at)).asLong();
    }
    return numbers;
  }

  /** Return the start of the window that contains a moment, both in seconds since 1970. */
  long start(long seconds, int size) {
    int found = java.util.Arrays.binarySearch(begins, seconds);
    int place = found >= 0 ? found : -found - 2;
    long local = seconds + offsets[place];
    long floor = local - Math.floorMod(local, (long) size);
    if (size > HOUR) {
      while (place > 0 && floor < begins[place] + offsets[place - 1]) {
        place--;
      }
    }
    return Math.max(floor - offsets[place], begins[place]);
  }
}

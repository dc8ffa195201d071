package millrace;

import org.apache.spark.unsafe.types.UTF8String;

/** The lines of one partition and file that have the same reason not to be counted, or none. */
final class Tally {
  final UTF8String topic;
  final int partition;
  final UTF8String file;
  final UTF8String reason;
  /** By metric with a verdict: the lines at fault for it. */
  final long[] faults;
  /** How many samples are kept: of all lines, or by metric of those at fault. */
  private final int[] kept;
  private long lines = 0;
  private long low = Long.MAX_VALUE;
  private long high = Long.MIN_VALUE;
  private Long latest = null;
  private final Stamps stamps = new Stamps();

  /** The texts are those of a row, and are copied. */
  Tally(UTF8String topic, int partition, UTF8String file, UTF8String reason, int metrics) {
    this.topic = topic.clone();
    this.partition = partition;
    this.file = file == null ? null : file.clone();
    this.reason = reason == null ? null : reason.clone();
    faults = new long[metrics];
    kept = new int[metrics + 1];
  }

  boolean isOf(UTF8String topic, int partition, UTF8String file, UTF8String reason) {
    return this.partition == partition
        && this.topic.equals(topic)
        && same(this.file, file)
        && same(this.reason, reason);
  }

  /** Whether all of these but the reason are the same. */
  static Object place(UTF8String topic, int partition, UTF8String file, UTF8String reason) {
    Key place = new Key(4);
    place.parts[0] = topic;
    place.parts[1] = UTF8String.fromString(Integer.toString(partition));
    place.parts[2] = file;
    place.parts[3] = reason;
    return place.copy();
  }

  void line(long offset) {
    lines++;
    low = Math.min(low, offset);
    high = Math.max(high, offset);
  }

  /** A line's record was stamped so many microseconds after 1970. */
  void stamp(long micros) {
    stamps.add(micros);
  }

  void time(long seconds) {
    if (latest == null || seconds > latest.longValue()) {
      latest = Long.valueOf(seconds);
    }
  }

  /** Whether another sample is kept; `which` is 0 for the reason, else 1 and the metric's place. */
  boolean takesSample(int which, int samples) {
    return kept[which]++ < samples;
  }

  /** As a tuple for Python: all of the above in the order of `stream/fold/java_fold.py`. */
  Object[] told() {
    return new Object[] {
      topic.toString(), Integer.valueOf(partition), text(file), text(reason), Long.valueOf(lines),
      Long.valueOf(low), Long.valueOf(high), latest, faults, stamps.told(),
    };
  }

  static String text(UTF8String text) {
    return text == null ? null : text.toString();
  }

  private static boolean same(UTF8String one, UTF8String other) {
    return one == null ? other == null : one.equals(other);
  }
}

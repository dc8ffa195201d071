package millrace;

import org.apache.spark.unsafe.types.UTF8String;

/** The lines of one partition and file with the same reason for not being counted, or none. */
final class Tally {
  final UTF8String topic;
  final int partition;
  final UTF8String file;
  final UTF8String reason;
  /** For each metric with a verdict, the number of faulty lines. */
  final long[] faults;
  /** The number of kept samples: of all lines, or per metric of the faulty ones. */
  private final int[] kept;
  private long lines = 0;
  private long low = Long.MAX_VALUE;
  private long high = Long.MIN_VALUE;
  private Long latest = null;
  private final Stamps stamps = new Stamps();

  /** The texts belong to a row, and are copied. */
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

  /** Return a key that is equal for equal arguments. */
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

  /** Note that a line's record was stamped this many microseconds after 1970. */
  void stamp(long micros) {
    stamps.add(micros);
  }

  void time(long seconds) {
    if (latest == null || seconds > latest.longValue()) {
      latest = Long.valueOf(seconds);
    }
  }

  /**
   * Tell whether to keep another sample; `which` is 0 for the reason, else 1 and the metric's
   * place.
   */
  boolean takesSample(int which, int samples) {
    return kept[which]++ < samples;
  }

  /** Return all of this as a tuple for Python, in the order of `stream/fold/java_fold.py`. */
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

package millrace;

import org.apache.datasketches.kll.KllDoublesSketch;
import org.apache.spark.sql.catalyst.InternalRow;

/** The counts of a grouping's metrics for one key in one window. */
final class Cell {
  private static final Amount[] NO_AMOUNTS = new Amount[0];

  /** The number of lines, by metric. */
  final long[] counts;
  /** The amounts of values, by metric; null for a metric without values. */
  final Amount[] amounts;
  private Distinct distinct;
  private KllDoublesSketch ranked;

  Cell(FoldSpec.Grouping of) {
    counts = new long[of.readings.length];
    amounts = of.hasAmounts ? new Amount[of.readings.length] : NO_AMOUNTS;
    for (int place = 0; place < amounts.length; place++) {
      if (of.readings[place].hasAmount) {
        amounts[place] = Amount.of(of.readings[place].isWhole);
      }
    }
  }

  boolean hasAmount(int place) {
    return amounts.length != 0 && amounts[place] != null;
  }

  /** Count a line for the metric in this place. */
  void add(FoldSpec.Reading reading, int place, InternalRow row) {
    counts[place]++;
    if (hasAmount(place)) {
      amounts[place].add(row, reading);
    }
    if (reading.isDistinct) {
      if (distinct == null) {
        distinct = new Distinct(reading.sketchSize, reading.exactMax);
      }
      distinct.add(row.getUTF8String(reading.valueAt).getBytes());
    } else if (reading.isRanked) {
      if (ranked == null) {
        ranked = KllDoublesSketch.newHeapInstance(reading.sketchSize);
      }
      ranked.update(row.getDecimal(reading.valueAt, reading.digits, reading.places).toDouble());
    }
  }

  /** Add another cell of the same grouping, which has no sketches. */
  void add(Cell other) {
    for (int place = 0; place < counts.length; place++) {
      counts[place] += other.counts[place];
      if (other.counts[place] > 0 && hasAmount(place)) {
        amounts[place].add(other.amounts[place]);
      }
    }
  }

  /** Return the sketch in the format of `sinks/values.py`; null for a metric without one. */
  byte[] sketch() {
    if (distinct != null) {
      return distinct.sketch();
    }
    return ranked == null ? null : ranked.toByteArray();
  }

  /** Write everything except the sketches. */
  void write(Octets out) {
    for (int place = 0; place < counts.length; place++) {
      out.varint(counts[place]);
      if (counts[place] > 0 && hasAmount(place)) {
        amounts[place].write(out);
      }
    }
  }

  void read(Cursor in) {
    for (int place = 0; place < counts.length; place++) {
      counts[place] = in.varint();
      if (counts[place] > 0 && hasAmount(place)) {
        amounts[place].read(in);
      }
    }
  }
}

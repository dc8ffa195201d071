package millrace;

import java.util.Iterator;
import java.util.List;
import java.util.Map;

import org.apache.spark.unsafe.types.UTF8String;
import scala.Tuple2;

/**
 * Cells of windows on the way from the task that counted them to the task that makes blocks. All
 * cells of a window go to the same task. A chunk begins with CELLS. Then it has for each window:
 * grouping, size, start, number of cells, octets, and the cells, each with its key first.
 */
final class Chunks {
  static final int CELLS = 'C';

  private final Octets[] open;
  private final int octetsMax;
  private final List closed;
  private final Octets window = new Octets();
  private int grouping = 0;

  /**
   * Make chunks for a number of tasks. A chunk that reaches `octetsMax` is closed; closed chunks
   * are added to `closed` as pairs of a task's number and octets.
   */
  Chunks(int tasks, int octetsMax, List closed) {
    open = new Octets[tasks];
    this.octetsMax = octetsMax;
    this.closed = closed;
  }

  /** Set the grouping of the windows that follow. */
  void of(int grouping) {
    this.grouping = grouping;
  }

  /** Add a window's cells, by key. */
  void window(int size, long start, Map cells) {
    if (cells.isEmpty()) {
      return;
    }
    window.clear();
    for (Iterator each = cells.entrySet().iterator(); each.hasNext(); ) {
      Map.Entry entry = (Map.Entry) each.next();
      UTF8String[] parts = ((Key) entry.getKey()).parts;
      for (int at = 0; at < parts.length; at++) {
        window.varint(parts[at] == null ? 0 : parts[at].numBytes() + 1);
        if (parts[at] != null) {
          window.text(parts[at]);
        }
      }
      ((Cell) entry.getValue()).write(window);
    }
    int task = (int) Math.floorMod((start * 31 + size) * 31 + grouping, (long) open.length);
    Octets chunk = chunk(task);
    chunk.varint(grouping);
    chunk.varint(size);
    chunk.eightOctets(start);
    chunk.varint(cells.size());
    chunk.varint(window.size());
    chunk.all(window);
    if (chunk.size() >= octetsMax) {
      close(task);
    }
  }

  void close() {
    for (int task = 0; task < open.length; task++) {
      close(task);
    }
  }

  private Octets chunk(int task) {
    if (open[task] == null) {
      open[task] = new Octets();
      open[task].octet(CELLS);
    }
    return open[task];
  }

  private void close(int task) {
    if (open[task] != null) {
      closed.add(new Tuple2(Integer.valueOf(task), open[task].copy()));
      open[task] = null;
    }
  }
}

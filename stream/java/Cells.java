package millrace;

import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;

import org.apache.spark.sql.catalyst.InternalRow;

/** The cells of one grouping in one task, by slice and key. */
final class Cells {
  /** The time of a line without one, which counts in `all` only. */
  static final long NO_TIME = -1;

  /** Receives cells that are not part of a block. */
  interface Rows {
    void row(FoldSpec.Reading reading, long start, Key key, Cell cell, int place);
  }

  private final FoldSpec.Grouping grouping;
  private final byte counted;
  private final Key probe;
  private final boolean[] isCounted;
  private final Map slices = new HashMap();
  private Map slice = null;
  private long sliceStart = 0;

  /** `counted` is the verdict of lines that count. */
  Cells(FoldSpec.Grouping grouping, byte counted) {
    this.grouping = grouping;
    this.counted = counted;
    probe = new Key(grouping.keysAt.length);
    isCounted = new boolean[grouping.readings.length];
  }

  /** Count a line of one of the grouping's topics; `seconds` is its time, or NO_TIME. */
  void take(InternalRow row, long seconds) {
    boolean any = false;
    for (int place = 0; place < isCounted.length; place++) {
      FoldSpec.Reading reading = grouping.readings[place];
      int at = reading.verdictAt;
      isCounted[place] =
          (at < 0 || !row.isNullAt(at) && row.getByte(at) == counted)
              && (seconds != NO_TIME || reading.hasAll);
      any |= isCounted[place];
    }
    if (!any) {
      return;
    }
    for (int at = 0; at < probe.parts.length; at++) {
      int column = grouping.keysAt[at];
      probe.parts[at] = row.isNullAt(column) ? null : row.getUTF8String(column);
    }
    Cell cell = cellOf(seconds);
    for (int place = 0; place < isCounted.length; place++) {
      if (isCounted[place]) {
        cell.add(grouping.readings[place], place, row);
      }
    }
  }

  private Cell cellOf(long seconds) {
    long start = startOf(seconds);
    if (slice == null || start != sliceStart) {
      slice = within(slices, Long.valueOf(start));
      sliceStart = start;
    }
    return cell(slice, probe);
  }

  private long startOf(long seconds) {
    boolean isTimeless = seconds == NO_TIME && grouping.slice != 0;
    return isTimeless ? NO_TIME : grouping.windowStart(seconds, grouping.slice);
  }

  /** Send the cells on: those of windows as chunks for `Blocks`. */
  void finish(FoldSpec spec, Chunks chunks, Rows rows) {
    boolean inBlocks = spec.asBlocks && !grouping.isSketched;
    Map[] coarser = new Map[inBlocks ? grouping.coarser.length : 0];
    for (int at = 0; at < coarser.length; at++) {
      coarser[at] = new HashMap();
    }
    for (Iterator all = slices.entrySet().iterator(); all.hasNext(); ) {
      Map.Entry entry = (Map.Entry) all.next();
      long start = ((Long) entry.getKey()).longValue();
      Map cells = (Map) entry.getValue();
      for (Iterator each = cells.entrySet().iterator(); each.hasNext(); ) {
        Map.Entry found = (Map.Entry) each.next();
        Key key = (Key) found.getKey();
        Cell cell = (Cell) found.getValue();
        if (!inBlocks || key.isLongerThan(spec.keyCharacters)) {
          offer(rows, start, key, cell);
          each.remove();
          continue;
        }
        for (int at = 0; at < coarser.length; at++) {
          int size = grouping.coarser[at];
          if (start == NO_TIME && size != 0) {
            continue;
          }
          long begin = grouping.windowStart(start, size);
          cell(within(coarser[at], Long.valueOf(begin)), key).add(cell);
        }
      }
      if (inBlocks && start != NO_TIME) {
        chunks.window(grouping.slice, start, cells);
      }
      // Written cells are no longer needed.
      all.remove();
    }
    for (int at = 0; at < coarser.length; at++) {
      for (Iterator all = coarser[at].entrySet().iterator(); all.hasNext(); ) {
        Map.Entry entry = (Map.Entry) all.next();
        long start = ((Long) entry.getKey()).longValue();
        chunks.window(grouping.coarser[at], start, (Map) entry.getValue());
      }
    }
  }

  private void offer(Rows rows, long start, Key key, Cell cell) {
    for (int place = 0; place < grouping.readings.length; place++) {
      if (cell.counts[place] > 0) {
        rows.row(grouping.readings[place], start, key, cell, place);
      }
    }
  }

  private Cell cell(Map cells, Key key) {
    Cell cell = (Cell) cells.get(key);
    if (cell == null) {
      cell = new Cell(grouping);
      cells.put(key == probe ? key.copy() : key, cell);
    }
    return cell;
  }

  private static Map within(Map windows, Long start) {
    Map cells = (Map) windows.get(start);
    if (cells == null) {
      cells = new HashMap();
      windows.put(start, cells);
    }
    return cells;
  }
}

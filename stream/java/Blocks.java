package millrace;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Turns cells into text for MySQL; `sinks/cells/blocks.py` defines the format. The frame of a block
 * has its kind, the metric's number, the window's size and start, the number of keys, and the text.
 * Frames without cells are passed on unchanged.
 */
final class Blocks implements FlatMapFunction {
  private static final byte[] HEXADECIMAL =
      "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);

  private final String spec;

  Blocks(String spec) {
    this.spec = spec;
  }

  public Iterator call(Object values) throws Exception {
    return new Task(FoldSpec.of(spec)).frames((Iterator) values);
  }

  /** The place of a part of a window's cells. */
  private static final class Part {
    final byte[] chunk;
    final int at;
    final int cells;

    Part(byte[] chunk, int at, int cells) {
      this.chunk = chunk;
      this.at = at;
      this.cells = cells;
    }
  }

  /** A cell with the identity of its key. */
  private static final class Known implements Comparable {
    final byte[] id;
    final Key key;
    final Cell cell;

    Known(byte[] id, Key key, Cell cell) {
      this.id = id;
      this.key = key;
      this.cell = cell;
    }

    public int compareTo(Object other) {
      return Arrays.compareUnsigned(id, ((Known) other).id);
    }
  }

  private static final class Window {
    final int grouping;
    final int size;
    final long start;
    final List parts = new ArrayList(1);

    Window(int grouping, int size, long start) {
      this.grouping = grouping;
      this.size = size;
      this.start = start;
    }

    public int hashCode() {
      return (Long.hashCode(start) * 31 + size) * 31 + grouping;
    }

    public boolean equals(Object object) {
      if (!(object instanceof Window)) {
        return false;
      }
      Window other = (Window) object;
      return grouping == other.grouping && size == other.size && start == other.start;
    }
  }

  /** The windows of one task. */
  private static final class Task {
    private final FoldSpec spec;
    private final MessageDigest digest;
    private final Octets hashed = new Octets();
    private final Octets tail = new Octets();

    Task(FoldSpec spec) throws Exception {
      this.spec = spec;
      digest = MessageDigest.getInstance("SHA-256");
    }

    /** Return the frames of all cells, then a frame with the time it took to make them. */
    Iterator frames(Iterator values) {
      List passed = new ArrayList();
      Map windows = new LinkedHashMap();
      while (values.hasNext()) {
        byte[] frame = (byte[]) values.next();
        if (frame[0] == Chunks.CELLS) {
          index(frame, windows);
        } else {
          passed.add(frame);
        }
      }
      final Iterator before = passed.iterator();
      final Iterator all = windows.values().iterator();
      // Make frames on demand, so that text and cells are not all in memory at once.
      return new Iterator() {
        private final List made = new ArrayList();
        private long nanos = 0;
        private boolean isTold = false;

        public boolean hasNext() {
          while (made.isEmpty() && !before.hasNext() && all.hasNext()) {
            long began = System.nanoTime();
            blocks((Window) all.next(), made);
            nanos += System.nanoTime() - began;
            all.remove();
          }
          if (made.isEmpty() && !before.hasNext() && !isTold) {
            made.add(Stopwatch.text(spec.textFrame, nanos));
            isTold = true;
          }
          return before.hasNext() || !made.isEmpty();
        }

        public Object next() {
          hasNext();
          return before.hasNext() ? before.next() : made.remove(made.size() - 1);
        }
      };
    }

    private static void index(byte[] chunk, Map windows) {
      Cursor cursor = new Cursor(chunk, 1);
      while (!cursor.isAtEnd()) {
        int grouping = (int) cursor.varint();
        int size = (int) cursor.varint();
        Window window = new Window(grouping, size, cursor.eightOctets());
        Window known = (Window) windows.get(window);
        if (known == null) {
          known = window;
          windows.put(window, window);
        }
        int cells = (int) cursor.varint();
        int octets = (int) cursor.varint();
        known.parts.add(new Part(chunk, cursor.at(), cells));
        cursor.skip(octets);
      }
    }

    /** Add the blocks of a window's metrics as frames. */
    private void blocks(Window window, List made) {
      FoldSpec.Grouping grouping = spec.groupings[window.grouping];
      Block[] blocks = new Block[grouping.readings.length];
      for (int place = 0; place < blocks.length; place++) {
        if (grouping.readings[place].hasWindow(window.size)) {
          blocks[place] = new Block(grouping.readings[place], spec.opening);
        }
      }
      Known[] cells = cells(window, grouping);
      // Sort as the table is sorted, so that the server fills its pages one after another.
      Arrays.sort(cells);
      for (int at = 0; at < cells.length; at++) {
        tuples(blocks, cells[at]);
      }
      for (int place = 0; place < blocks.length; place++) {
        if (blocks[place] != null && blocks[place].keys > 0) {
          made.add(blocks[place].frame(spec.blockFrame, window));
        }
      }
    }

    private Known[] cells(Window window, FoldSpec.Grouping grouping) {
      List found = new ArrayList();
      Map byKey = window.parts.size() > 1 ? new HashMap() : null;
      for (Iterator all = window.parts.iterator(); all.hasNext(); ) {
        Part part = (Part) all.next();
        Cursor cursor = new Cursor(part.chunk, part.at);
        for (int at = 0; at < part.cells; at++) {
          Key key = key(cursor, grouping);
          Cell cell = new Cell(grouping);
          cell.read(cursor);
          Cell known = byKey == null ? null : (Cell) byKey.get(key);
          if (known != null) {
            known.add(cell);
            continue;
          }
          if (byKey != null) {
            byKey.put(key, cell);
          }
          found.add(new Known(id(key), key, cell));
        }
      }
      return (Known[]) found.toArray(new Known[0]);
    }

    private static Key key(Cursor cursor, FoldSpec.Grouping grouping) {
      Key key = new Key(grouping.keysAt.length);
      for (int at = 0; at < key.parts.length; at++) {
        int length = (int) cursor.varint();
        key.parts[at] = length == 0 ? null : cursor.text(length - 1);
      }
      return key;
    }

    /** Adds a cell to the block of each metric that has counted it. */
    private void tuples(Block[] blocks, Known found) {
      tail.clear();
      columns(found);
      for (int place = 0; place < blocks.length; place++) {
        if (blocks[place] != null && found.cell.counts[place] > 0) {
          blocks[place].tuple(tail, found.cell, place);
        }
      }
    }

    private void digits(byte[] octets) {
      tail.ascii("0x");
      for (int at = 0; at < octets.length; at++) {
        tail.octet(HEXADECIMAL[octets[at] >> 4 & 15]);
        tail.octet(HEXADECIMAL[octets[at] & 15]);
      }
    }

    /** Return the identity, as `sinks.keys.key_id` makes it. */
    private byte[] id(Key key) {
      hashed.clear();
      if (isText(key)) {
        hashed.octet('=');
        hashed.text(key.parts[0]);
        return hashed.copy();
      }
      for (int at = 0; at < key.parts.length; at++) {
        UTF8String part = key.parts[at];
        if (part == null) {
          hashed.octet('-');
        } else {
          hashed.digits(part.numBytes());
          hashed.octet(':');
          hashed.text(part);
        }
      }
      byte[] hash = digest.digest(hashed.copy());
      byte[] id = new byte[1 + spec.hashOctets];
      id[0] = '#';
      System.arraycopy(hash, 0, id, 1, spec.hashOctets);
      return id;
    }

    /** Tell whether the identity contains the key's text. */
    private boolean isText(Key key) {
      return key.parts.length == 1 && key.parts[0] != null
          && key.parts[0].numBytes() <= spec.textOctets;
    }

    /** Write the identity, and the parts of the key that it does not contain. */
    private void columns(Known found) {
      UTF8String[] parts = found.key.parts;
      if (isText(found.key)) {
        if (isAwkward(parts[0])) {
          digits(found.id);
        } else {
          tail.ascii("'=");
          tail.text(parts[0]);
          tail.octet('\'');
        }
        tail.ascii(",NULL,");
        return;
      }
      digits(found.id);
      if (parts.length == 0) {
        tail.ascii(",'*'");
      }
      for (int at = 0; at < parts.length; at++) {
        UTF8String part = parts[at];
        tail.octet(',');
        if (part == null) {
          tail.ascii("NULL");
        } else if (isAwkward(part)) {
          tail.ascii("_utf8mb4 ");
          digits(part.getBytes());
        } else {
          tail.octet('\'');
          tail.text(part);
          tail.octet('\'');
        }
      }
      tail.octet(',');
    }

    /** Tell whether a text would need escapes. */
    private static boolean isAwkward(UTF8String text) {
      for (int at = 0; at < text.numBytes(); at++) {
        byte octet = text.getByte(at);
        if (octet == '\'' || octet == '\\' || octet == 0) {
          return true;
        }
      }
      return false;
    }
  }

  /** The tuples of one metric in one window. */
  private static final class Block {
    private final FoldSpec.Reading reading;
    private final byte[] opening;
    private final Octets body = new Octets();
    private int keys = 0;

    Block(FoldSpec.Reading reading, byte[] opening) {
      this.reading = reading;
      this.opening = opening;
    }

    /** Add a tuple; `tail` has the text from the identity to the comma after the key. */
    void tuple(Octets tail, Cell cell, int place) {
      if (keys++ > 0) {
        body.octet(',');
      }
      body.all(opening);
      body.all(tail);
      body.digits(cell.counts[place]);
      if (reading.hasAmount) {
        String sum = quoted(cell.amounts[place].sum());
        String least = quoted(cell.amounts[place].least());
        String most = quoted(cell.amounts[place].most());
        body.ascii("," + sum + "," + least + "," + most);
      }
      body.octet(')');
    }

    /** Quote a number, because the server would read one with an exponent as a double. */
    private static String quoted(BigDecimal number) {
      return "'" + number.toPlainString() + "'";
    }

    byte[] frame(int kind, Window window) {
      Octets frame = new Octets();
      frame.octet(kind);
      frame.fourOctets(reading.number);
      frame.fourOctets(window.size);
      frame.eightOctets(window.start);
      frame.fourOctets(keys);
      frame.all(body);
      return frame.copy();
    }
  }
}

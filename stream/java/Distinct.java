package millrace;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

import org.apache.datasketches.hash.MurmurHash3;

/**
 * The distinct texts of one cell. While they are few, it holds their words, each 64 bits of a
 * text's hash; then it holds the registers of an HLL sketch. `sinks/distinct.py` defines words and
 * the format of sketches.
 */
final class Distinct {
  private static final byte EXACT_MARK = 'E';
  private static final byte MANY_MARK = 'M';
  private static final long SEED = 9001;
  /** Hashed instead of the empty text, because the hash function refuses an empty array. */
  private static final byte[] EMPTY = {(byte) 0xff};
  /** How many bits of a word come from the second half of the hash, and from the first half. */
  private static final int SECOND_BITS = 38;
  private static final int FIRST_BITS = 26;
  private static final int HEAD_OCTETS = 40;
  /** Registers from this value on have their own sum. */
  private static final int HIGH_REGISTER = 32;

  private final int lgRegisters;
  private final int exactMax;
  /** A hash table of words with open addressing; 0 is a free place. */
  private long[] words = new long[8];
  private int size = 0;
  /** Null while there are few words. */
  private byte[] registers = null;

  Distinct(int lgRegisters, int exactMax) {
    this.lgRegisters = lgRegisters;
    this.exactMax = exactMax;
  }

  /** Add a text's octets. */
  void add(byte[] text) {
    long[] hash = MurmurHash3.hash(text.length == 0 ? EMPTY : text, SEED);
    long word = hash[0] << SECOND_BITS | hash[1] >>> FIRST_BITS;
    word = word == 0 ? 1 : word;
    if (registers != null) {
      raise(word);
    } else if (keep(word) && size > exactMax) {
      registers = new byte[1 << lgRegisters];
      for (int at = 0; at < words.length; at++) {
        if (words[at] != 0) {
          raise(words[at]);
        }
      }
      words = null;
    }
  }

  /** Keep a word; false if it is already there. */
  private boolean keep(long word) {
    int at = placeOf(word, words);
    if (words[at] == word) {
      return false;
    }
    words[at] = word;
    size++;
    if (2 * size > words.length) {
      long[] wider = new long[2 * words.length];
      for (int from = 0; from < words.length; from++) {
        if (words[from] != 0) {
          wider[placeOf(words[from], wider)] = words[from];
        }
      }
      words = wider;
    }
    return true;
  }

  /** Return the place of a word, or the free place for it. */
  private static int placeOf(long word, long[] words) {
    int at = (int) word & words.length - 1;
    while (words[at] != 0 && words[at] != word) {
      at = at + 1 & words.length - 1;
    }
    return at;
  }

  private void raise(long word) {
    int slot = (int) (word >>> SECOND_BITS) & (1 << lgRegisters) - 1;
    // The leading zeros of the second half, plus one.
    int zeros = Long.numberOfLeadingZeros(word << FIRST_BITS);
    byte register = (byte) (Math.min(zeros, SECOND_BITS) + 1);
    if (registers[slot] < register) {
      registers[slot] = register;
    }
  }

  /** Return the sketch as octets. */
  byte[] sketch() {
    return registers == null ? exact() : many();
  }

  private byte[] exact() {
    long[] sorted = new long[size];
    int found = 0;
    for (int at = 0; at < words.length; at++) {
      if (words[at] != 0) {
        // The smallest number of Java is the smallest word.
        sorted[found++] = words[at] + Long.MIN_VALUE;
      }
    }
    Arrays.sort(sorted);
    ByteBuffer octets = ByteBuffer.allocate(1 + 8 * size);
    octets.put(EXACT_MARK);
    for (int at = 0; at < size; at++) {
      octets.putLong(sorted[at] + Long.MIN_VALUE);
    }
    return octets.array();
  }

  private byte[] many() {
    double low = 0;
    double high = 0;
    int zeros = 0;
    for (int at = 0; at < registers.length; at++) {
      double power = Math.scalb(1.0, -registers[at]);
      if (registers[at] < HIGH_REGISTER) {
        low += power;
      } else {
        high += power;
      }
      zeros += registers[at] == 0 ? 1 : 0;
    }
    ByteBuffer octets = ByteBuffer.allocate(1 + HEAD_OCTETS + registers.length);
    octets.order(ByteOrder.LITTLE_ENDIAN);
    octets.put(MANY_MARK);
    // The octets of `sinks/distinct.py`: preamble, version, family; flags 8 and 16, and the mode
    // HLL_8.
    octets.put(new byte[] {10, 1, 7, (byte) lgRegisters, 0, (byte) 24, 0, (byte) 10});
    octets.putDouble(0).putDouble(low).putDouble(high);
    octets.putInt(zeros).putInt(0);
    octets.put(registers);
    return octets.array();
  }
}

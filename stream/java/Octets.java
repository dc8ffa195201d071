package millrace;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** A buffer for writing octets; those of java.io take a lock for each octet. */
final class Octets {
  private byte[] octets = new byte[1 << 12];
  private int size = 0;

  int size() {
    return size;
  }

  byte[] copy() {
    return Arrays.copyOf(octets, size);
  }

  void clear() {
    size = 0;
  }

  void octet(int octet) {
    reserve(1);
    octets[size++] = (byte) octet;
  }

  void all(byte[] some) {
    reserve(some.length);
    System.arraycopy(some, 0, octets, size, some.length);
    size += some.length;
  }

  void all(Octets other) {
    reserve(other.size);
    System.arraycopy(other.octets, 0, octets, size, other.size);
    size += other.size;
  }

  /** Write a text of ASCII characters. */
  void ascii(String text) {
    all(text.getBytes(StandardCharsets.US_ASCII));
  }

  /** Write the octets of a text unchanged. */
  void text(UTF8String text) {
    int length = text.numBytes();
    reserve(length);
    text.writeToMemory(octets, Platform.BYTE_ARRAY_OFFSET + size);
    size += length;
  }

  /** Write the decimal digits of a non-negative number. */
  void digits(long number) {
    if (number >= 10) {
      digits(number / 10);
    }
    octet('0' + (int) (number % 10));
  }

  void fourOctets(int number) {
    reserve(4);
    for (int shift = 24; shift >= 0; shift -= 8) {
      octets[size++] = (byte) (number >>> shift);
    }
  }

  void eightOctets(long number) {
    fourOctets((int) (number >>> 32));
    fourOctets((int) number);
  }

  /** Write a number in as few groups of seven bits as it needs, the lowest first. */
  void varint(long number) {
    while ((number & ~0x7fL) != 0) {
      octet((int) (number | 0x80));
      number >>>= 7;
    }
    octet((int) number);
  }

  private void reserve(int more) {
    if (octets.length - size < more) {
      long wanted = Math.max((long) size + more, 2L * octets.length);
      octets = Arrays.copyOf(octets, (int) Math.min(wanted, Integer.MAX_VALUE - 8));
    }
  }
}

package millrace;

import org.apache.spark.unsafe.types.UTF8String;

/** A reading position in octets that `Octets` wrote. */
final class Cursor {
  private final byte[] octets;
  private int at;

  Cursor(byte[] octets, int at) {
    this.octets = octets;
    this.at = at;
  }

  boolean isAtEnd() {
    return at == octets.length;
  }

  int at() {
    return at;
  }

  void skip(int some) {
    at += some;
  }

  long eightOctets() {
    long number = 0;
    for (int some = 0; some < 8; some++) {
      number = number << 8 | octets[at++] & 0xff;
    }
    return number;
  }

  int fourOctets() {
    int number = 0;
    for (int some = 0; some < 4; some++) {
      number = number << 8 | octets[at++] & 0xff;
    }
    return number;
  }

  long varint() {
    long number = 0;
    for (int shift = 0; ; shift += 7) {
      byte octet = octets[at++];
      number |= (octet & 0x7fL) << shift;
      if (octet >= 0) {
        return number;
      }
    }
  }

  /** Return a text of this length, without copying it. */
  UTF8String text(int length) {
    UTF8String text = UTF8String.fromBytes(octets, at, length);
    at += length;
    return text;
  }
}

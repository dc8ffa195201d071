package millrace;

import org.apache.spark.unsafe.types.UTF8String;

/** Removes what programs write around a line's text: marks, colours, escapes of nginx. */
public final class Plain {
  private static final int ESCAPE = 0x1b;
  private static final int BACKSLASH = '\\';

  private Plain() {}

  /**
   * Return a line without a byte order mark at its beginning, and without the control sequences
   * that change colours. A line with neither is returned unchanged.
   */
  public static UTF8String text(UTF8String line) {
    int length = line.numBytes();
    int begin = hasMark(line, length) ? 3 : 0;
    int first = begin;
    while (first < length && line.getByte(first) != ESCAPE) {
      first++;
    }
    if (first == length) {
      return begin == 0 ? line : UTF8String.fromAddress(
          line.getBaseObject(), line.getBaseOffset() + begin, length - begin);
    }
    byte[] octets = line.getBytes();
    byte[] made = new byte[length];
    int size = 0;
    for (int at = begin; at < length; ) {
      int after = octets[at] == ESCAPE ? sequenceEnd(octets, at) : at;
      if (after > at) {
        at = after;
      } else {
        made[size++] = octets[at++];
      }
    }
    return UTF8String.fromBytes(made, 0, size);
  }

  private static boolean hasMark(UTF8String line, int length) {
    return length >= 3 && line.getByte(0) == (byte) 0xef && line.getByte(1) == (byte) 0xbb
        && line.getByte(2) == (byte) 0xbf;
  }

  /** Return the end of the control sequence that begins here; `at` if there is none. */
  private static int sequenceEnd(byte[] octets, int at) {
    int end = at + 1;
    if (end == octets.length || octets[end] != '[') {
      return at;
    }
    end++;
    while (end < octets.length && octets[end] >= 0x20 && octets[end] <= 0x3f) {
      end++;
    }
    return end < octets.length && octets[end] >= 0x40 && octets[end] <= 0x7e ? end + 1 : at;
  }

  /**
   * Convert nginx's escapes in a JSON document to JSON's. Without `escape=json` nginx writes an
   * octet as `\xHH`, which is not valid JSON; octets above 127 are UTF-8.
   */
  public static UTF8String json(UTF8String line) {
    byte[] octets = line.getBytes();
    byte[] made = null;
    int size = 0;
    for (int at = 0; at < octets.length; ) {
      int value = octets[at] == BACKSLASH ? escapedOctet(octets, at) : -1;
      if (value < 0) {
        // An escape of JSON has two octets at least, and the second can be a backslash.
        int many = octets[at] == BACKSLASH && at + 1 < octets.length ? 2 : 1;
        for (int end = at + many; at < end; at++) {
          if (made != null) {
            made[size] = octets[at];
          }
          size++;
        }
        continue;
      }
      if (made == null) {
        // The four octets of an escape become at most six.
        made = new byte[octets.length + octets.length / 2 + 2];
        System.arraycopy(octets, 0, made, 0, size);
      }
      size = put(made, size, value);
      at += 4;
    }
    return made == null ? line : UTF8String.fromBytes(made, 0, size);
  }

  private static int put(byte[] made, int size, int value) {
    if (value >= 0x20 && value != '"' && value != BACKSLASH) {
      made[size++] = (byte) value;
      return size;
    }
    String digits = Integer.toHexString(0x10000 | value).substring(1);
    byte[] spelled = ("\\" + "u" + digits).getBytes();
    System.arraycopy(spelled, 0, made, size, spelled.length);
    return size + spelled.length;
  }

  /** Return the octet that `\xHH` stands for; -1 if there is no such escape. */
  private static int escapedOctet(byte[] octets, int at) {
    if (at + 3 >= octets.length || octets[at + 1] != 'x') {
      return -1;
    }
    int high = Character.digit((char) octets[at + 2], 16);
    int low = Character.digit((char) octets[at + 3], 16);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
  }
}

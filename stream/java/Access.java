package millrace;

import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Splits plain lines of access logs, and reads their times; `stream/parse/access.py` says which
 * lines are plain. Any other line gives NULL, and is parsed by the pattern.
 */
public final class Access {
  /** The number of texts in a line of the common format, and of the combined one. */
  private static final int COMMON = 9;
  private static final int COMBINED = 11;

  /** The value of `octet` behind the end of the line. */
  private static final int BEYOND = 256;

  private static final String MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec";
  /** The length of `01/Aug/2026:10:00:01 +0000`. */
  private static final int TIME_OCTETS = 26;
  private static final long MICROS = 1_000_000L;
  private static final int ZONE_MINUTES_MAX = 18 * 60;

  private final Object base;
  private final long offset;
  private final int length;
  private final Object[] texts;
  private int at = 0;
  private int found = 0;

  private Access(UTF8String line, int texts) {
    base = line.getBaseObject();
    offset = line.getBaseOffset();
    length = line.numBytes();
    this.texts = new Object[texts];
  }

  /** Return address, ident, user, time, method, target, protocol, status and size of a line. */
  public static ArrayData common(UTF8String line) {
    Access access = new Access(line, COMMON);
    return access.head() && access.hasEnded() ? new GenericArrayData(access.texts) : null;
  }

  /** Return the same, with referer and user agent. */
  public static ArrayData combined(UTF8String line) {
    Access access = new Access(line, COMBINED);
    boolean isPlain =
        access.head() && access.takes(' ') && access.quoted() && access.takes(' ')
            && access.quoted() && access.hasEnded();
    return isPlain ? new GenericArrayData(access.texts) : null;
  }

  private boolean head() {
    return address() && takes(' ') && takes('-') && keep(at - 1) && takes(' ')
        && word(false) && takes(' ') && time() && takes(' ') && takes('"')
        && word(true) && takes(' ') && word(true) && takes(' ') && word(true) && takes('"')
        && takes(' ') && status() && takes(' ') && size();
  }

  /** Tell whether all required fields are read; a server may add others behind a blank. */
  private boolean hasEnded() {
    return at == length || octet(at) == ' ';
  }

  /** Return the octet in a place, BEYOND behind the end. */
  private int octet(int place) {
    if (place >= length) {
      return BEYOND;
    }
    return Platform.getByte(base, offset + place);
  }

  private boolean takes(int octet) {
    if (octet(at) != octet) {
      return false;
    }
    at++;
    return true;
  }

  /** Keep the text from `begin` on, without copying it. */
  private boolean keep(int begin) {
    texts[found++] = UTF8String.fromAddress(base, offset + begin, at - begin);
    return at > begin;
  }

  /**
   * Read an address or a host name. Two colons make it an IPv6 address. A text with a single colon,
   * or with a character that neither has, is left to the pattern.
   */
  private boolean address() {
    int colons = 0;
    boolean isHexadecimal = true;
    while (at < length && octet(at) != ' ') {
      int octet = octet(at);
      boolean isDigit = octet >= '0' && octet <= '9' || octet == '.';
      boolean isLetter = octet >= 'a' && octet <= 'z' || octet >= 'A' && octet <= 'Z';
      if (octet == ':') {
        colons++;
      } else if (!isDigit && !isLetter && octet != '-' && octet != '_') {
        return false;
      } else if (!isDigit && !(isLetter && (octet | 0x20) <= 'f')) {
        isHexadecimal = false;
      }
      at++;
    }
    boolean isName = colons == 0 && octet(0) != '.' && octet(0) != '-';
    return (isName || colons > 1 && isHexadecimal) && keep(0);
  }

  /** Read a text without blanks; within a request also without quotes and backslashes. */
  private boolean word(boolean isRequest) {
    int begin = at;
    while (at < length) {
      int octet = octet(at);
      if (octet == ' ' || isRequest && octet == '"') {
        break;
      }
      if (isRequest && octet == '\\') {
        return false;
      }
      at++;
    }
    return keep(begin);
  }

  private boolean time() {
    int begin = at + 1;
    if (octet(at) != '[' || octet(begin + TIME_OCTETS) != ']') {
      return false;
    }
    at = begin + TIME_OCTETS;
    boolean isTime =
        digits(begin, 2) && octet(begin + 2) == '/' && isBetween(begin + 3, 'A', 'Z')
            && isBetween(begin + 4, 'a', 'z') && isBetween(begin + 5, 'a', 'z')
            && octet(begin + 6) == '/' && digits(begin + 7, 4) && octet(begin + 11) == ':'
            && digits(begin + 12, 2) && octet(begin + 14) == ':' && digits(begin + 15, 2)
            && octet(begin + 17) == ':' && digits(begin + 18, 2) && octet(begin + 20) == ' '
            && (octet(begin + 21) == '+' || octet(begin + 21) == '-') && digits(begin + 22, 4);
    if (!isTime) {
      return false;
    }
    keep(begin);
    at++;
    return true;
  }

  private boolean status() {
    int begin = at;
    at += 3;
    return digits(begin, 3) && keep(begin);
  }

  private boolean size() {
    int begin = at;
    while (isBetween(at, '0', '9')) {
      at++;
    }
    return (at > begin || takes('-')) && keep(begin);
  }

  /** Read a text in quotes that contains no quotes or backslashes. */
  private boolean quoted() {
    if (!takes('"')) {
      return false;
    }
    int begin = at;
    while (at < length && octet(at) != '"') {
      if (octet(at) == '\\') {
        return false;
      }
      at++;
    }
    keep(begin);
    return takes('"');
  }

  private boolean digits(int begin, int many) {
    for (int place = begin; place < begin + many; place++) {
      if (!isBetween(place, '0', '9')) {
        return false;
      }
    }
    return true;
  }

  private boolean isBetween(int place, int low, int high) {
    int octet = octet(place);
    return octet >= low && octet <= high;
  }

  /**
   * Return a plain line's time in microseconds since 1970; null if there is no such day or zone.
   */
  public static Long time(UTF8String text) {
    int day = number(text, 0, 2);
    int place = MONTHS.indexOf(text.copyUTF8String(3, 5).toString());
    int month = place % 3 == 0 ? place / 3 + 1 : 0;
    int year = number(text, 7, 4);
    int hour = number(text, 12, 2);
    int minute = number(text, 15, 2);
    int second = number(text, 18, 2);
    int zoneMinute = number(text, 24, 2);
    int zone = number(text, 22, 2) * 60 + zoneMinute;
    // As in `TimeFields`: midnight can be the end of the day, and a leap second belongs to its
    // minute.
    boolean isEnd = hour == 24 && minute == 0 && second == 0;
    boolean isTime =
        month > 0 && day > 0 && day <= days(year, month) && (hour < 24 || isEnd) && minute < 60
            && second <= 60 && zoneMinute < 60 && zone <= ZONE_MINUTES_MAX;
    if (!isTime) {
      return null;
    }
    long minutes = (daysSince1970(year, month, day) * 24L + hour) * 60 + minute;
    minutes += text.getByte(21) == '-' ? zone : -zone;
    return Long.valueOf((minutes * 60 + Math.min(second, 59)) * MICROS);
  }

  private static int number(UTF8String text, int begin, int digits) {
    int number = 0;
    for (int place = begin; place < begin + digits; place++) {
      number = number * 10 + text.getByte(place) - '0';
    }
    return number;
  }

  private static int days(int year, int month) {
    if (month == 2) {
      return isLeap(year) ? 29 : 28;
    }
    return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
  }

  private static boolean isLeap(int year) {
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  }

  private static long daysSince1970(int year, int month, int day) {
    return java.time.LocalDate.of(year, month, day).toEpochDay();
  }
}

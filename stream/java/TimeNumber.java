package millrace;

import java.math.BigDecimal;
import java.math.RoundingMode;

/** Reads times that are numbers: since 1970, as calendar digits, and TAI64N labels. */
class TimeNumber extends TimeCursor {
  private static final int NUMBER_MAX = 400;
  /**
   * Numbers below these are seconds, milliseconds, microseconds since 1970; others nanoseconds.
   */
  private static final BigDecimal SECONDS_END = new BigDecimal("1e11");
  private static final BigDecimal MILLIS_END = new BigDecimal("1e14");
  private static final BigDecimal MICROS_END = new BigDecimal("1e17");
  /** March 1973: in a field found by its name, a smaller number is a duration. */
  private static final long PICKED_MIN_S = 100_000_000L;
  /** TAI64N labels of daemontools begin with 2^62, and are 10 s ahead of Unix time. */
  private static final long TAI_ZERO = (1L << 62) + 10;
  private static final int TAI_DIGITS = 24;

  /** Whether the field was found by its name; then short numbers and bare dates are no times. */
  final boolean isPicky;

  TimeNumber(byte[] octets, TimeZones zones, boolean isPicky) {
    super(octets, zones);
    this.isPicky = isPicky;
  }

  boolean isNumber() {
    int place = octet(at) == '+' || octet(at) == '-' ? at + 1 : at;
    int whole = digits(place);
    place += whole;
    int places = octet(place) == '.' ? digits(place + 1) : -1;
    place += places + 1;
    if ((octet(place) | 32) == 'e' && whole + Math.max(places, 0) > 0) {
      int sign = octet(place + 1) == '+' || octet(place + 1) == '-' ? 1 : 0;
      int digits = digits(place + 1 + sign);
      if (digits > 0 && digits <= 3) {
        place += 1 + sign + digits;
      }
    }
    return place == end && end - at <= NUMBER_MAX && whole + Math.max(places, 0) > 0;
  }

  /** Read `20240907`, `20240907161201` or more digits, if they are a day of 1970 to 2099. */
  boolean compact() {
    int digits = digits(at);
    if (digits != 8 && digits != 14 && digits != 17 || at + digits < end && digits != 14) {
      return false;
    }
    int begin = at;
    int year = number(4);
    int month = number(2);
    int day = number(2);
    if (year >= 1970 && year < 2100 && TimeFields.isDay(year, month, day)) {
      fields.year = year;
      fields.setDate(month, day);
      if (digits == 8 ? !isPicky : compactClock(digits - 8) && isAtEnd() && isClock()) {
        return true;
      }
    }
    at = begin;
    fields.year = TimeFields.UNKNOWN;
    fields.nanos = 0;
    return false;
  }

  private boolean isClock() {
    return fields.hour < 24 && fields.minute < 60 && fields.second < 60;
  }

  /** Read a number of seconds, milliseconds, microseconds or nanoseconds since 1970. */
  boolean number() {
    int digits = digits(at);
    long whole;
    if (at + digits == end && (digits <= 18 || digits == 19 && octet(at) < '9')) {
      long value = 0;
      while (at < end) {
        value = value * 10 + octets[at++] - '0';
      }
      long scale =
          value < 100_000_000_000L ? 1L
              : value < 100_000_000_000_000L ? 1_000L
              : value < 100_000_000_000_000_000L ? 1_000_000L : 1_000_000_000L;
      whole = value / scale;
      fields.nanos = (int) (value % scale * (1_000_000_000L / scale));
    } else {
      BigDecimal value = new BigDecimal(text(at, end));
      if (value.signum() < 0 || value.precision() - value.scale() > 21) {
        return false;
      }
      int places =
          value.compareTo(SECONDS_END) < 0 ? 0
              : value.compareTo(MILLIS_END) < 0 ? 3 : value.compareTo(MICROS_END) < 0 ? 6 : 9;
      BigDecimal seconds = value.movePointLeft(places).setScale(9, RoundingMode.FLOOR);
      whole = seconds.longValue();
      fields.nanos = seconds.remainder(BigDecimal.ONE).movePointRight(9).intValue();
      at = end;
    }
    fields.epoch = whole;
    return !isPicky || whole >= PICKED_MIN_S;
  }

  /** Read `@4000000037c219bf2ef02e94`, as multilog and svlogd write it. */
  boolean label() {
    at++;
    if (end - at != TAI_DIGITS) {
      return false;
    }
    long seconds = 0;
    long nanos = 0;
    for (int place = 0; place < TAI_DIGITS; place++) {
      int digit = Character.digit((char) octet(at++), 16);
      if (digit < 0) {
        return false;
      }
      if (place < 16) {
        seconds = seconds << 4 | digit;
      } else {
        nanos = nanos << 4 | digit;
      }
    }
    fields.epoch = seconds - TAI_ZERO;
    fields.nanos = (int) Math.min(nanos, 999_999_999L);
    return true;
  }

  /** Read the digits behind a point, a comma or a colon. */
  void point() {
    int octet = octet(at);
    if ((octet == '.' || octet == ',' || octet == ':') && isDigit(at + 1)) {
      at++;
      fraction();
    }
  }

  /** Read `1612`, `161201` or `161201123`. */
  boolean compactClock(int digits) {
    if (digits != 4 && digits != 6 && digits != 9) {
      return false;
    }
    fields.hour = number(2);
    fields.minute = number(2);
    if (digits > 4) {
      fields.second = number(2);
    }
    if (digits == 9) {
      fraction();
    } else {
      point();
    }
    fields.hasClock = true;
    return true;
  }
}

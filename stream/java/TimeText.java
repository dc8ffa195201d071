package millrace;

import java.math.BigDecimal;
import java.math.RoundingMode;

/**
 * Reads a time that is spelled in one of the common ways; `configs/README.md` lists them. A date
 * whose day and month cannot be told apart is not guessed.
 */
final class TimeText extends TimeCursor {
  private static final int NUMBER_MAX = 400;
  /** Numbers below: seconds, milliseconds, microseconds since 1970; others are nanoseconds. */
  private static final BigDecimal SECONDS_END = new BigDecimal("1e11");
  private static final BigDecimal MILLIS_END = new BigDecimal("1e14");
  private static final BigDecimal MICROS_END = new BigDecimal("1e17");
  /** March 1973: a smaller number in a field that was found by its name is a duration. */
  private static final long PICKED_MIN_S = 100_000_000L;
  /** TAI64N labels of daemontools begin with 2^62, and are 10 s ahead of Unix time. */
  private static final long TAI_ZERO = (1L << 62) + 10;
  private static final int TAI_DIGITS = 24;
  private static final String AMBIGUOUS = "time:ambiguous";

  /** Whether the field was found by its name: then short numbers and bare dates are no times. */
  private final boolean isPicky;

  TimeText(byte[] octets, TimeZones zones, boolean isPicky) {
    super(octets, zones);
    this.isPicky = isPicky;
  }

  /** Fill the fields; false where the text is no time. */
  boolean read() {
    if (isAtEnd()) {
      return false;
    }
    if (isNumber()) {
      return compact() || number();
    }
    unwrap();
    if (octet(at) == '@') {
      return label();
    }
    if (weekday()) {
      takes(',');
      blanks();
    }
    boolean isDated = isDigit(at) ? digitsFirst() : monthFirst();
    if (!isDated) {
      return false;
    }
    if (isAtEnd()) {
      return !isPicky && (fields.hasYear() || fields.fault != null);
    }
    return (fields.hasClock || separator() && clock()) && tail();
  }

  private boolean isNumber() {
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

  /** Read `20240907`, `20240907161201` or more digits, where they are a day of 1970 to 2099. */
  private boolean compact() {
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
  private boolean number() {
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
  private boolean label() {
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

  /** Leave out brackets around the text, and Cisco's marks before and behind it. */
  private void unwrap() {
    if (octet(at) == '[' && octet(end - 1) == ']' && text(at + 1, end).indexOf('[') < 0) {
      at++;
      end--;
      blanks();
    }
    if (octet(at) == '*' || octet(at) == '.') {
      at++;
    }
    if (octet(end - 1) == ':') {
      end--;
    }
  }

  private boolean digitsFirst() {
    int digits = digits(at);
    int next = octet(at + digits);
    if (digits == 4) {
      boolean isClockNext = next == ' ' && digits(at + 5) <= 2 && octet(at + 5 + digits(at + 5)) == ':';
      return isClockNext ? monthAndDay() : yearFirst();
    }
    if (digits == 8 || digits == 14 || digits == 17) {
      fields.setYear(number(4), 4);
      fields.setDate(number(2), number(2));
      return digits == 8 || compactClock(digits - 8);
    }
    if (digits == 6) {
      fields.setYear(number(2), 2);
      fields.setDate(number(2), number(2));
      return true;
    }
    return digits <= 2 && dayFirst(digits);
  }

  /** Read klog's `0907 16:12:01.123456`. */
  private boolean monthAndDay() {
    fields.setDate(number(2), number(2));
    return true;
  }

  /** Read `2024-09-07`, `2024/9/7`, `2024.09.07`, `2024-Sep-07`, `2024 Sep 7` or `2024-251`. */
  private boolean yearFirst() {
    fields.setYear(number(4), 4);
    int mark = octet(at);
    if (mark != '-' && mark != '/' && mark != '.' && mark != ' ') {
      return false;
    }
    at++;
    int digits = digits(at);
    if (digits == 0) {
      return named(month(), mark);
    }
    if (digits == 3 && mark == '-') {
      fields.dayOfYear = number(3);
      return true;
    }
    if (digits > 2 || mark == ' ') {
      return false;
    }
    int month = number(digits);
    return takes(mark) && setDay(month);
  }

  private boolean named(int month, int mark) {
    return month > 0 && (mark == ' ' ? blanks() : takes(mark)) && setDay(month);
  }

  private boolean setDay(int month) {
    int digits = digits(at);
    if (digits != 1 && digits != 2) {
      return false;
    }
    fields.setDate(month, number(digits));
    return true;
  }

  /** Read `07/Sep/2024`, `7-Sep-24`, `07 Sep 2024`, `07 Sep`, or numbers alone. */
  private boolean dayFirst(int digits) {
    int first = number(digits);
    int mark = octet(at);
    if (mark == '/' || mark == '-' || mark == '.') {
      at++;
      return isDigit(at) ? threeNumbers(first, digits, mark) : dayAndMonth(first, mark);
    }
    return blanks() && dayAndMonth(first, ' ');
  }

  private boolean dayAndMonth(int day, int mark) {
    int month = month();
    if (month == 0) {
      return false;
    }
    fields.setDate(month, day);
    if (mark == ' ') {
      yearBehind(true);
      return true;
    }
    int digits = takes(mark) ? digits(at) : 0;
    if (digits != 2 && digits != 4) {
      return false;
    }
    fields.setYear(number(digits), digits);
    return true;
  }

  /** Read a date of three numbers where only one order of them is a date. */
  private boolean threeNumbers(int first, int firstDigits, int mark) {
    int digits = digits(at);
    if (digits > 2) {
      return false;
    }
    int second = number(digits);
    if (!takes(mark)) {
      return false;
    }
    int thirdDigits = digits(at);
    if (thirdDigits == 0 || thirdDigits == 3 || thirdDigits > 4) {
      return false;
    }
    int third = number(thirdDigits);
    int candidates = 0;
    if (thirdDigits != 1) {
      candidates += candidate(third, thirdDigits, second, first);
      // With dots, the day stands first.
      if (mark != '.' && first != second) {
        candidates += candidate(third, thirdDigits, first, second);
      }
    }
    if (firstDigits == 2 && thirdDigits <= 2) {
      candidates += candidate(first, 2, second, third);
    }
    if (candidates > 1) {
      fields.fault = AMBIGUOUS;
    }
    return candidates > 0;
  }

  /** Take a date if there is such a day; the number of dates taken. */
  private int candidate(int year, int digits, int month, int day) {
    TimeFields full = new TimeFields();
    full.setYear(year, digits);
    if (!TimeFields.isDay(full.year, month, day)) {
      return 0;
    }
    boolean isKnown = fields.year == full.year && fields.month == month && fields.day == day;
    fields.year = full.year;
    fields.setDate(month, day);
    return isKnown ? 0 : 1;
  }

  /** Read `Sep  7`, `Sep 7 2024`, `September 7, 2024`. */
  private boolean monthFirst() {
    int month = month();
    if (month == 0 || !blanks() && !takes('-') || !setDay(month)) {
      return false;
    }
    yearBehind(false);
    return true;
  }

  /** Read a year, where what follows is not the time of day already. */
  private void yearBehind(boolean isShortTaken) {
    int begin = at;
    takes(',');
    blanks();
    takes('-');
    int digits = digits(at);
    boolean isYear = digits == 4 || digits == 2 && isShortTaken;
    if (isYear && octet(at + digits) != ':' && octet(at + digits) != '.') {
      fields.setYear(number(digits), digits);
      return;
    }
    at = begin;
  }

  private boolean separator() {
    int begin = at;
    takes(',');
    boolean isBlank = blanks();
    if (isBlank && octet(at) == 'a' && octet(at + 1) == 't' && octet(at + 2) == ' ') {
      at += 3;
    }
    if (at == begin) {
      int octet = octet(at);
      if (octet == 'T' || octet == 't' || octet == '_' || octet == '-' || octet == ':') {
        at++;
      }
    }
    return at > begin;
  }

  /** Read `16:12:01.123`, `16:12:01,123`, `16:12:01:123`, `16.12.01`, `16:12`, `161201`, AM or PM. */
  private boolean clock() {
    int digits = digits(at);
    if (digits != 1 && digits != 2) {
      if (!compactClock(digits)) {
        return false;
      }
      point();
    } else {
      fields.hour = number(digits);
      int mark = octet(at);
      if (mark != ':' && mark != '.' || digits(at + 1) != 2) {
        return false;
      }
      at++;
      fields.minute = number(2);
      if (octet(at) == mark && digits(at + 1) == 2) {
        at++;
        fields.second = number(2);
        point();
      } else if (mark == '.') {
        return false;
      }
      fields.hasClock = true;
    }
    int begin = at;
    blanks();
    if (!half()) {
      at = begin;
    }
    return true;
  }

  /** Read the digits behind a point, a comma or a colon. */
  private void point() {
    int octet = octet(at);
    if ((octet == '.' || octet == ',' || octet == ':') && isDigit(at + 1)) {
      at++;
      fraction();
    }
  }

  /** Read `1612`, `161201` or `161201123`. */
  private boolean compactClock(int digits) {
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

  /** Read zones, a year, and comments, in any order. */
  private boolean tail() {
    while (!isAtEnd()) {
      blanks();
      int octet = octet(at);
      if (octet == '+' || octet == '-') {
        if (fields.hasZone() || !offset()) {
          return false;
        }
      } else if (octet == '(') {
        at = end;
      } else if (octet == '[') {
        at++;
        if (!zone() || !takes(']')) {
          return false;
        }
      } else if (octet == 'm' && octet(at + 1) == '=') {
        at = end;
      } else if (isLetter(at)) {
        if (!zone()) {
          return false;
        }
      } else if (digits(at) == 4 && !fields.hasYear()) {
        fields.setYear(number(4), 4);
      } else {
        return false;
      }
    }
    return true;
  }
}

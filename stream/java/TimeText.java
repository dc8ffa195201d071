package millrace;

/**
 * Reads a time in one of the common formats; `docs/reference/inputs.md` lists them. If day and month of a
 * date cannot be told apart, the date is not guessed.
 */
final class TimeText extends TimeNumber {
  private static final String AMBIGUOUS = "time:ambiguous";

  TimeText(byte[] octets, TimeZones zones, boolean isPicky) {
    super(octets, zones, isPicky);
  }

  /** Fill the fields; false if the text is no time. */
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

  /** Remove brackets around the text, and Cisco's marks before and after it. */
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

  /** Read a date of three numbers if only one order of them is a date. */
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
      // With dots, the day is first.
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

  /** Take a date if there is such a day; return the number of dates taken. */
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

  /** Read a year, unless the next part is already the time of day. */
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

package millrace;

/**
 * Reads the parts of a time text from left to right. After a failed read the position is unchanged.
 */
class TimeCursor {
  private static final String[] MONTHS = {
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
  };
  private static final String[] DAYS = {
    "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday",
  };
  private static final int OFFSET_MAX = 18 * 3_600;
  private static final int WORD_MAX = 40;

  final byte[] octets;
  final TimeZones zones;
  final TimeFields fields = new TimeFields();
  int at = 0;
  int end;

  TimeCursor(byte[] octets, TimeZones zones) {
    this.octets = octets;
    this.zones = zones;
    end = octets.length;
    while (end > 0 && (isBlank(end - 1) || octet(end - 1) == '\n' || octet(end - 1) == '\r')) {
      end--;
    }
    blanks();
  }

  /** Return the octet in a place, 0 behind the end. */
  int octet(int place) {
    return place >= 0 && place < end ? octets[place] & 255 : 0;
  }

  boolean isAtEnd() {
    return at >= end;
  }

  boolean takes(int octet) {
    if (octet(at) != octet || isAtEnd()) {
      return false;
    }
    at++;
    return true;
  }

  private boolean isBlank(int place) {
    int octet = octet(place);
    return octet == ' ' || octet == '\t';
  }

  /** Skip blanks, tabs and the no-break spaces that Java and browsers put before AM and PM. */
  boolean blanks() {
    int begin = at;
    while (!isAtEnd()) {
      if (isBlank(at)) {
        at++;
      } else if (octet(at) == 0xC2 && octet(at + 1) == 0xA0) {
        at += 2;
      } else if (octet(at) == 0xE2 && octet(at + 1) == 0x80 && octet(at + 2) == 0xAF) {
        at += 3;
      } else {
        break;
      }
    }
    return at > begin;
  }

  boolean isDigit(int place) {
    int octet = octet(place);
    return octet >= '0' && octet <= '9';
  }

  boolean isLetter(int place) {
    int octet = octet(place);
    return octet >= 'a' && octet <= 'z' || octet >= 'A' && octet <= 'Z';
  }

  /** Return the number of digits from a place on. */
  int digits(int place) {
    int found = 0;
    while (isDigit(place + found)) {
      found++;
    }
    return found;
  }

  /** Read a number of this many digits. */
  int number(int digits) {
    int number = 0;
    for (int place = 0; place < digits; place++) {
      number = number * 10 + octets[at++] - '0';
    }
    return number;
  }

  /** Return the letters from here on, in lower case; empty if there are none. */
  String word() {
    int begin = at;
    while (isLetter(at) && at - begin < WORD_MAX) {
      at++;
    }
    return text(begin, at).toLowerCase(java.util.Locale.ROOT);
  }

  String text(int begin, int end) {
    return new String(octets, begin, end - begin, java.nio.charset.StandardCharsets.ISO_8859_1);
  }

  /** Read an English month name, whole or its first three letters (also `Sept`); else return 0. */
  int month() {
    int begin = at;
    String word = word();
    for (int place = 0; place < MONTHS.length; place++) {
      if (isName(word, MONTHS[place]) || place == 8 && word.equals("sept")) {
        takes('.');
        return place + 1;
      }
    }
    at = begin;
    return 0;
  }

  /** Read an English weekday name. It is not compared with the date. */
  boolean weekday() {
    int begin = at;
    String word = word();
    for (int place = 0; place < DAYS.length; place++) {
      if (isName(word, DAYS[place])) {
        return true;
      }
    }
    at = begin;
    return false;
  }

  private static boolean isName(String word, String name) {
    return word.equals(name) || word.length() == 3 && name.startsWith(word);
  }

  /** Read the digits of a fraction of a second; those after the ninth are ignored. */
  boolean fraction() {
    int digits = digits(at);
    int nanos = 0;
    for (int place = 0; place < 9; place++) {
      nanos = nanos * 10 + (place < digits ? octets[at + place] - '0' : 0);
    }
    at += digits;
    fields.nanos = nanos;
    return digits > 0;
  }

  /** Read AM or PM. */
  boolean half() {
    int first = octet(at) | 32;
    if (first != 'a' && first != 'p' || (octet(at + 1) | 32) != 'm' || isLetter(at + 2)) {
      return false;
    }
    fields.half = first == 'a' ? 1 : 2;
    at += 2;
    return true;
  }

  /** Read `+02`, `+0200`, `+02:00`, `-3:30` or `+02:00:00`. */
  boolean offset() {
    int begin = at;
    int sign = octet(at) == '-' ? -1 : 1;
    if (!takes('+') && !takes('-')) {
      return false;
    }
    int digits = digits(at);
    int seconds = 0;
    if (digits == 1 || digits == 2) {
      seconds = number(digits) * 3_600;
      if (octet(at) == ':' && digits(at + 1) == 2) {
        at++;
        int minutes = number(2);
        seconds = minutes > 59 ? OFFSET_MAX + 1 : seconds + minutes * 60;
        if (octet(at) == ':' && digits(at + 1) == 2) {
          at++;
          seconds += number(2);
        }
      }
    } else if (digits == 4 || digits == 6) {
      seconds = number(2) * 3_600;
      int minutes = number(2);
      seconds = minutes > 59 ? OFFSET_MAX + 1 : seconds + minutes * 60;
      seconds += digits == 6 ? number(2) : 0;
    } else {
      seconds = OFFSET_MAX + 1;
    }
    if (seconds > OFFSET_MAX) {
      at = begin;
      return false;
    }
    fields.setOffset(sign * seconds);
    return true;
  }

  /**
   * Read a zone's name: `Z`, `CEST`, `Europe/Berlin`, `GMT+3`. After an offset it is a comment.
   */
  boolean zone() {
    int begin = at;
    while (isLetter(at)) {
      at++;
    }
    int letters = at - begin;
    String name = text(begin, at);
    boolean isUtc =
        name.equalsIgnoreCase("utc") || name.equalsIgnoreCase("gmt") || name.equalsIgnoreCase("ut");
    if (isUtc && (octet(at) == '+' || octet(at) == '-') && isDigit(at + 1)) {
      return !fields.hasZone() && offset();
    }
    if (octet(at) == '/' || octet(at) == '_' || isDigit(at) && letters > 1) {
      while (isRegion(at)) {
        at++;
      }
      name = text(begin, at);
    }
    if (at == begin || at - begin > WORD_MAX) {
      at = begin;
      return false;
    }
    if (!fields.hasZone() && !zones.take(name, fields)) {
      if (fields.fault == null && letters == name.length() && letters <= TimeZones.SHORT_MAX) {
        fields.fault = "time:zone " + name;
        return true;
      }
      at = begin;
      return false;
    }
    return true;
  }

  private boolean isRegion(int place) {
    int octet = octet(place);
    return isLetter(place) || isDigit(place) || octet == '/' || octet == '_' || octet == '-'
        || octet == '+';
  }
}

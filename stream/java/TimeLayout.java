package millrace;

/**
 * Reads a time by a layout, such as `%d/%b/%Y:%H:%M:%S %z`; `stream/config/times.py` defines the
 * directives, and refuses others. A blank matches any number of blanks, including none.
 */
final class TimeLayout extends TimeCursor {
  private final String layout;

  TimeLayout(byte[] octets, TimeZones zones, String layout) {
    super(octets, zones);
    this.layout = layout;
  }

  /** Fill the fields; false if the text does not fit the layout. */
  boolean read() {
    for (int place = 0; place < layout.length(); place++) {
      char one = layout.charAt(place);
      if (one == ' ') {
        blanks();
      } else if (one == '%') {
        place++;
        if (!directive(layout.charAt(place))) {
          return false;
        }
      } else if (!literal(one)) {
        return false;
      }
    }
    return isAtEnd() && !(fields.hour > 12 && fields.half != 0);
  }

  private boolean literal(char one) {
    if (one < 128) {
      return takes(one);
    }
    byte[] own = String.valueOf(one).getBytes(java.nio.charset.StandardCharsets.UTF_8);
    for (int place = 0; place < own.length; place++) {
      if (!takes(own[place] & 255)) {
        return false;
      }
    }
    return true;
  }

  private boolean directive(char which) {
    switch (which) {
      case '%':
        return takes('%');
      case 'a':
        return weekday();
      case 'b':
        fields.month = month();
        return fields.month > 0;
      case 'f':
        return fraction();
      case 'p':
        return half();
      case 's':
        return epoch();
      case 'z':
        return offset() || isLetter(at) && zone();
      case 'Z':
        return isLetter(at) && zone();
      default:
        return numeric(which);
    }
  }

  private boolean epoch() {
    int digits = digits(at);
    if (digits == 0 || digits > 12) {
      return false;
    }
    long seconds = 0;
    for (int place = 0; place < digits; place++) {
      seconds = seconds * 10 + octets[at++] - '0';
    }
    fields.epoch = seconds;
    return true;
  }

  private boolean numeric(char which) {
    blanks();
    int most = which == 'Y' ? 4 : which == 'j' ? 3 : 2;
    int digits = Math.min(digits(at), most);
    if (digits == 0 || digits < 4 && which == 'Y' || digits < 2 && which == 'y') {
      return false;
    }
    int number = number(digits);
    switch (which) {
      case 'Y':
      case 'y':
        fields.setYear(number, digits);
        break;
      case 'm':
        fields.month = number;
        break;
      case 'd':
        fields.day = number;
        break;
      case 'j':
        fields.dayOfYear = number;
        break;
      case 'H':
        fields.hour = number;
        break;
      case 'I':
        fields.hour = number;
        return number >= 1 && number <= 12;
      case 'M':
        fields.minute = number;
        break;
      case 'S':
        fields.second = number;
        break;
      default:
        return false;
    }
    return true;
  }
}

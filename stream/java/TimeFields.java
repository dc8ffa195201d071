package millrace;

import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.zone.ZoneRules;

/**
 * The fields of one time text, and the instant that they mean.
 *
 * <p>A local time that occurs twice, when clocks go back, means the first one. A local time that is
 * skipped, when clocks go forward, is moved forward by the length of the gap.
 */
final class TimeFields {
  /** The value for an instant that does not exist. */
  static final long NONE = Long.MIN_VALUE;

  static final long MICROS = 1_000_000L;

  static final int UNKNOWN = Integer.MIN_VALUE;
  private static final long DAY_S = 86_400L;
  /** MySQL's DATETIME ends before the year 10000. */
  private static final long END_S = 253_402_300_800L;
  /** A two-digit year from here on belongs to the twentieth century. */
  private static final int PIVOT = 70;
  /** How many years to search back for a 29th of February: 1900 and 2100 are no leap years. */
  private static final int YEARS_BACK = 9;

  int year = UNKNOWN;
  int month = UNKNOWN;
  int day = UNKNOWN;
  int dayOfYear = UNKNOWN;
  int hour = 0;
  int minute = 0;
  int second = 0;
  int nanos = 0;
  boolean hasClock = false;
  /** 0: a 24-hour clock, 1: before noon, 2: after noon. */
  int half = 0;
  /** Seconds since 1970, if the text gives these. */
  long epoch = NONE;
  private int offset = UNKNOWN;
  private ZoneRules rules = null;
  /** Why the text is no time, if the reason has a name; else null. */
  String fault = null;

  boolean hasYear() {
    return year != UNKNOWN;
  }

  boolean hasZone() {
    return offset != UNKNOWN || rules != null;
  }

  void setYear(int number, int digits) {
    year = digits > 2 ? number : number < PIVOT ? 2000 + number : 1900 + number;
  }

  void setOffset(int seconds) {
    offset = seconds;
  }

  void setRules(ZoneRules rules) {
    this.rules = rules;
  }

  void setDate(int month, int day) {
    this.month = month;
    this.day = day;
  }

  /** Tell whether such a day exists. */
  static boolean isDay(int year, int month, int day) {
    return month >= 1 && month <= 12 && day >= 1 && day <= days(year, month);
  }

  private static int days(int year, int month) {
    if (month == 2) {
      return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28;
    }
    return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
  }

  /**
   * Return microseconds since 1970; NONE if the fields are no time. `ownRules` are those of the
   * input's zone, null for UTC. A date without a year gets the latest year in which it is at most
   * one day after the arrival.
   */
  long micros(ZoneRules ownRules, long arrival) {
    if (epoch != NONE) {
      return inRange(epoch, nanos);
    }
    int hours = hours();
    if (fault != null || hours < 0 || minute > 59 || second > 60) {
      return NONE;
    }
    // A leap second belongs to the minute that it ends.
    long clock = hours * 3_600L + minute * 60L + (second > 59 ? 59 : second);
    if (hasYear()) {
      return inRange(seconds(year, clock, ownRules), nanos);
    }
    long limit = arrival / MICROS + DAY_S;
    int latest = LocalDate.ofEpochDay(Math.floorDiv(limit, DAY_S)).getYear() + 1;
    for (int back = 0; back <= YEARS_BACK; back++) {
      long found = seconds(latest - back, clock, ownRules);
      if (found != NONE && found <= limit) {
        return inRange(found, nanos);
      }
    }
    return NONE;
  }

  /** Return hours since midnight, at most 24; -1 if there is no such hour. */
  private int hours() {
    if (half == 0) {
      boolean isEnd = hour == 24 && minute == 0 && second == 0 && nanos == 0;
      return hour < 24 || isEnd ? hour : -1;
    }
    if (hour > 12) {
      // Some programs write `13:05 PM`, in both formats at once.
      return half == 2 && hour < 24 ? hour : -1;
    }
    return hour % 12 + (half == 2 ? 12 : 0);
  }

  private long seconds(int inYear, long clock, ZoneRules ownRules) {
    long days;
    if (dayOfYear != UNKNOWN) {
      int length = days(inYear, 2) + 337;
      if (dayOfYear < 1 || dayOfYear > length) {
        return NONE;
      }
      days = LocalDate.ofYearDay(inYear, dayOfYear).toEpochDay();
    } else if (isDay(inYear, month, day)) {
      days = LocalDate.of(inYear, month, day).toEpochDay();
    } else {
      return NONE;
    }
    long local = days * DAY_S + clock;
    if (offset != UNKNOWN) {
      return local - offset;
    }
    ZoneRules zone = rules != null ? rules : ownRules;
    if (zone == null) {
      return local;
    }
    LocalDateTime at = LocalDateTime.ofEpochSecond(local, 0, ZoneOffset.UTC);
    // In a gap or an overlap this is the offset before the transition.
    return local - zone.getOffset(at).getTotalSeconds();
  }

  private static long inRange(long seconds, int nanos) {
    return seconds < 0 || seconds >= END_S ? NONE : seconds * MICROS + nanos / 1_000;
  }
}

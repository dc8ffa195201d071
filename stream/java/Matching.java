package millrace;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;

import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.catalyst.util.StringUtils;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Replaces Spark's functions of regular expressions by matchers that always end (see `Exchange`).
 * All methods raise `Steps.TooMany`; no argument is null.
 */
public final class Matching {
  /** The last pattern of this thread, for patterns that are computed per line. */
  private static final ThreadLocal LAST = new ThreadLocal();

  private Matching() {}

  /** Return the pattern of a text. */
  public static BoundedPattern pattern(UTF8String text) {
    return made(text.toString());
  }

  /** Return the pattern of a LIKE text. */
  public static BoundedPattern likePattern(UTF8String text, int escape) {
    return made(StringUtils.escapeLikeRegex(text.toString(), (char) escape));
  }

  private static BoundedPattern made(String regex) {
    BoundedPattern last = (BoundedPattern) LAST.get();
    if (last == null || !last.isOf(regex)) {
      last = new BoundedPattern(regex);
      LAST.set(last);
    }
    return last;
  }

  /** RLIKE. */
  public static boolean find(UTF8String text, BoundedPattern pattern) {
    return pattern.isFoundIn(text.toString());
  }

  /** LIKE. */
  public static boolean match(UTF8String text, BoundedPattern pattern) {
    return pattern.matcher(text.toString()).matches();
  }

  /** regexp_extract. */
  public static UTF8String extract(UTF8String text, BoundedPattern pattern, int group) {
    Matcher matcher = pattern.matcher(text.toString());
    return matcher.find() ? group(matcher, group) : UTF8String.EMPTY_UTF8;
  }

  /** regexp_extract_all. */
  public static ArrayData extractAll(UTF8String text, BoundedPattern pattern, int group) {
    Matcher matcher = pattern.matcher(text.toString());
    List found = new ArrayList();
    while (matcher.find()) {
      found.add(group(matcher, group));
    }
    return new GenericArrayData((Object[]) found.toArray());
  }

  private static UTF8String group(Matcher matcher, int group) {
    String found = matcher.group(group);
    return found == null ? UTF8String.EMPTY_UTF8 : UTF8String.fromString(found);
  }

  /** regexp_replace; `position` is counted from 1. */
  public static UTF8String replace(
      UTF8String text, BoundedPattern pattern, UTF8String replacement, int position) {
    String source = text.toString();
    int from = position - 1;
    if (from != 0 && from >= source.length()) {
      return text;
    }
    String put = replacement.toString();
    Matcher matcher = pattern.matcher(source);
    matcher.region(from, source.length());
    StringBuilder made = new StringBuilder();
    while (matcher.find()) {
      matcher.appendReplacement(made, put);
    }
    matcher.appendTail(made);
    return UTF8String.fromString(made.toString());
  }

  /** regexp_instr. */
  public static int position(UTF8String text, BoundedPattern pattern) {
    Matcher matcher = pattern.matcher(text.toString());
    return matcher.find() ? matcher.start() + 1 : 0;
  }

  /** split. */
  public static ArrayData split(UTF8String text, BoundedPattern pattern, int limit) {
    if (pattern.isPlain()) {
      UTF8String[] parts = text.split(UTF8String.fromString(pattern.toString()), limit);
      return new GenericArrayData((Object[]) parts);
    }
    // For Java a limit of 0 drops empty parts at the end; for Spark it means all parts.
    String[] parts =
        pattern.compiled().split(new Steps(text.toString()), limit == 0 ? -1 : limit);
    Object[] texts = new Object[parts.length];
    for (int at = 0; at < texts.length; at++) {
      texts[at] = UTF8String.fromString(parts[at]);
    }
    return new GenericArrayData(texts);
  }
}

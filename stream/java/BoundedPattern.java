package millrace;

import java.io.Serializable;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A Java regular expression whose matchers always end (`Steps`). Thread-safe. */
public final class BoundedPattern implements Serializable {
  private static final String META = "\\[](){}.*+?^$|";

  private final String regex;
  private transient volatile Pattern compiled;

  public BoundedPattern(String regex) {
    this.regex = regex;
  }

  /** Tell whether it is found in a text; raises `Steps.TooMany`. */
  public boolean isFoundIn(String text) {
    return matcher(text).find();
  }

  Matcher matcher(String text) {
    return compiled().matcher(new Steps(text));
  }

  Pattern compiled() {
    Pattern found = compiled;
    if (found == null) {
      found = Pattern.compile(regex);
      compiled = found;
    }
    return found;
  }

  /** Tell whether it contains only literal characters. */
  boolean isPlain() {
    for (int at = 0; at < regex.length(); at++) {
      if (META.indexOf(regex.charAt(at)) >= 0) {
        return false;
      }
    }
    return true;
  }

  boolean isOf(String other) {
    return regex.equals(other);
  }

  public boolean equals(Object other) {
    return other instanceof BoundedPattern && ((BoundedPattern) other).isOf(regex);
  }

  public int hashCode() {
    return regex.hashCode();
  }

  public String toString() {
    return regex;
  }
}

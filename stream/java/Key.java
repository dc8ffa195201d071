package millrace;

import org.apache.spark.unsafe.types.UTF8String;

/** The key of a cell: its texts in the order of the key columns, null for NULL. */
final class Key {
  final UTF8String[] parts;

  Key(int columns) {
    parts = new UTF8String[columns];
  }

  /** Return a copy with its own texts, because those of a row vanish with the row. */
  Key copy() {
    Key copy = new Key(parts.length);
    for (int at = 0; at < parts.length; at++) {
      copy.parts[at] = parts[at] == null ? null : parts[at].clone();
    }
    return copy;
  }

  /** Tell whether any text has more characters than this. */
  boolean isLongerThan(int characters) {
    for (int at = 0; at < parts.length; at++) {
      UTF8String part = parts[at];
      if (part != null && part.numBytes() > characters && part.numChars() > characters) {
        return true;
      }
    }
    return false;
  }

  public int hashCode() {
    int hash = 0;
    for (int at = 0; at < parts.length; at++) {
      hash = 31 * hash + (parts[at] == null ? 1 : parts[at].hashCode());
    }
    return hash;
  }

  public boolean equals(Object object) {
    if (!(object instanceof Key)) {
      return false;
    }
    UTF8String[] others = ((Key) object).parts;
    for (int at = 0; at < parts.length; at++) {
      if (parts[at] == null ? others[at] != null : !parts[at].equals(others[at])) {
        return false;
      }
    }
    return others.length == parts.length;
  }
}

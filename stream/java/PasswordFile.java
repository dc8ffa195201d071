package millrace;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Map;

import javax.security.auth.Subject;
import javax.security.auth.callback.CallbackHandler;
import javax.security.auth.login.LoginException;
import javax.security.auth.spi.LoginModule;

/**
 * Gives Kafka's clients the user and the password of their login, as Kafka's ScramLoginModule does.
 * But it reads the password from a file, because the options of Kafka's source are shown in plans
 * and logs.
 */
public class PasswordFile implements LoginModule {
  /** Loading this class makes the mechanisms SCRAM known to the JVM. */
  private static final String SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule";

  private Subject subject;
  private Map options;

  public void initialize(
      Subject subject, CallbackHandler handler, Map sharedState, Map options) {
    this.subject = subject;
    this.options = options;
  }

  public boolean login() throws LoginException {
    String file = (String) options.get("passwordFile");
    try {
      Class.forName(SCRAM, true, Thread.currentThread().getContextClassLoader());
      subject.getPrivateCredentials().add(password(file));
    } catch (IOException error) {
      throw new LoginException("the password cannot be read from " + file + ": " + error);
    } catch (ClassNotFoundException error) {
      throw new LoginException("Kafka's client is missing: " + error);
    }
    subject.getPublicCredentials().add(options.get("username"));
    return true;
  }

  public boolean commit() {
    return true;
  }

  public boolean abort() {
    return false;
  }

  public boolean logout() {
    return true;
  }

  /** Return the only line of a file, without its end. */
  private static String password(String file) throws IOException {
    byte[] content = Files.readAllBytes(Paths.get(file, new String[0]));
    String text = new String(content, StandardCharsets.UTF_8);
    int end = text.length();
    if (end > 0 && text.charAt(end - 1) == '\n') {
      end--;
    }
    if (end > 0 && text.charAt(end - 1) == '\r') {
      end--;
    }
    return text.substring(0, end);
  }
}

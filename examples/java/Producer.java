// A producer in Java with JDBC: invoice, payment and event commit together, or not at all.
//
//   java -cp /usr/share/java/postgresql.jar examples/java/Producer.java INVOICE AMOUNT IBAN   (DATABASE_URL; see examples/README.md)

import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Properties;

public final class Producer {
    /** What the lane answered. */
    record Payment(String outboxId, boolean duplicate) {}

    // Casts make the server take the texts for what they are. A `?` is always a value here: JDBC wants jsonb's operators doubled, `??`.
    static final String INVOICE = """
        INSERT INTO public.example_invoices (id, amount, state) VALUES (?, ?::numeric, 'paying')
        ON CONFLICT (id) DO UPDATE SET amount = excluded.amount RETURNING event_id, occurred_at""";
    static final String PAYMENT = """
        SELECT outbox_id, duplicate FROM symphony.enqueue_payment_outbox(p_instruction_id => ?,
            p_participant_id => ?, p_idempotency_key => ?, p_rail_type => ?, p_payload => ?::jsonb)""";
    static final String EVENT = "SELECT duplicate FROM symphony.enqueue_event_outbox(p_event => ?::jsonb)";

    /** Inside the caller's transaction: first the caller's own state, then the payment and the event, which lock. */
    static Payment ask(Connection connection, String invoice, String amount, String iban) throws SQLException {
        String eventId;
        String occurredAt;
        try (var stored = one(connection, INVOICE, invoice, amount)) {
            eventId = stored.getString("event_id");
            occurredAt = stored.getString("occurred_at");
        }
        // Without a JSON library: the values below need no escaping but `"` and `\`. The amount is a text: a double would change it.
        String money = "{\"value\": %s, \"currency\": \"EUR\"}".formatted(quoted(amount));
        String payload = "{\"amount\": %s, \"destination\": {\"iban\": %s}}".formatted(money, quoted(iban));
        Payment payment;
        try (var asked = one(connection, PAYMENT, invoice, "acme", "pay", "sepa", payload)) {
            payment = new Payment(asked.getString("outbox_id"), asked.getBoolean("duplicate"));
        }
        // Events of one key are published in order. Ids and figures, never personal data.
        String event = """
            {"envelope": {"v": 1, "eventId": %s, "occurredAt": %s, "tenantId": "tnt_1", "type": "events.invoices.paying"},
             "key": {"invoiceId": %s}, "payload": {"invoiceId": %s, "amount": %s}}"""
            .formatted(quoted(eventId), quoted(occurredAt), quoted(invoice), quoted(invoice), money);
        try (var told = one(connection, EVENT, event)) {
            expect(told.getBoolean("duplicate") == payment.duplicate(), "payment and event are new together, or known together");
        }
        return payment;
    }

    /** The one row of an answer; closing it closes its statement. */
    static ResultSet one(Connection connection, String sql, String... values) throws SQLException {
        PreparedStatement statement = connection.prepareStatement(sql);
        statement.closeOnCompletion();
        for (int at = 0; at < values.length; at++) {
            statement.setString(at + 1, values[at]);
        }
        ResultSet rows = statement.executeQuery();
        rows.next();
        return rows;
    }

    static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    /** One business transaction. */
    static Payment pay(Connection connection, String invoice, String amount, String iban) throws SQLException {
        try {
            Payment payment = ask(connection, invoice, amount, iban);
            connection.commit();
            return payment;
        } catch (SQLException error) {
            connection.rollback();
            throw error;
        }
    }

    static Connection connect(String databaseUrl) throws SQLException {
        URI url = URI.create(databaseUrl);
        String[] login = url.getUserInfo().split(":", 2);
        Properties properties = new Properties();
        properties.setProperty("user", login[0]);
        properties.setProperty("password", login.length > 1 ? login[1] : "");
        // Never a named statement, which a transaction pooler would lose. Leave it out on a direct connection. And keep
        // preferQueryMode as it is: `simple` would write the values into the SQL.
        properties.setProperty("prepareThreshold", "0");
        int port = url.getPort() < 0 ? 5432 : url.getPort();
        Connection connection =
            DriverManager.getConnection("jdbc:postgresql://%s:%d%s".formatted(url.getHost(), port, url.getPath()), properties);
        connection.setAutoCommit(false);
        return connection;
    }

    public static void main(String[] arguments) throws SQLException {
        expect(arguments.length == 3, "Producer.java INVOICE AMOUNT IBAN");
        String invoice = arguments[0];
        String amount = arguments[1];
        String iban = arguments[2];
        try (Connection connection = connect(System.getenv("DATABASE_URL"))) {
            Payment first = pay(connection, invoice, amount, iban);
            System.out.println((first.duplicate() ? "known already: " : "new: ") + first.outboxId());

            // Did the COMMIT's answer get lost? Do it all again.
            Payment again = pay(connection, invoice, amount, iban);
            expect(again.equals(new Payment(first.outboxId(), true)), "the same request is the same payment");
            System.out.println("known already: " + again.outboxId());

            // The same name for another request: refused, and the invoice's new amount is rolled back with it.
            try {
                pay(connection, invoice, "0.01", iban);
                expect(false, "another request under the same name is refused");
            } catch (SQLException error) {
                expect("P7004".equals(error.getSQLState()), "P7004 and not " + error.getSQLState());
                System.out.println("refused: " + error.getSQLState());
            }

            // A transaction that is rolled back leaves nothing: the second time everything is new again.
            for (int time = 0; time < 2; time++) {
                Payment cancelled = ask(connection, invoice + "-cancelled", amount, iban);
                expect(!cancelled.duplicate(), "nothing is left of a rolled back transaction");
                connection.rollback();
            }
            System.out.println("rolled back: nothing is left");
        }
    }

    static void expect(boolean holds, String claim) {
        if (!holds) {
            System.err.println("expected: " + claim);
            System.exit(1);
        }
    }
}

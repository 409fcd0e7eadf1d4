<?php
// A producer in PHP with PDO: invoice, payment and event commit together, or not at all.
//
//   php examples/php/producer.php INVOICE AMOUNT IBAN      (DATABASE_URL; see examples/README.md)

declare(strict_types=1);

// Inside the caller's transaction: first the caller's own state, then the payment and the event, which lock.
function ask(PDO $connection, string $invoice, string $amount, string $iban): array
{
    $stored = one(
        $connection,
        "INSERT INTO public.example_invoices (id, amount, state) VALUES (:id, :amount::numeric, 'paying')
         ON CONFLICT (id) DO UPDATE SET amount = excluded.amount RETURNING event_id, occurred_at",
        ['id' => $invoice, 'amount' => $amount],
    );
    $money = ['value' => $amount, 'currency' => 'EUR']; // a text: a float would change it
    $payment = one(
        $connection,
        'SELECT outbox_id, duplicate FROM symphony.enqueue_payment_outbox(p_instruction_id => :instruction,
             p_participant_id => :participant, p_idempotency_key => :key, p_rail_type => :rail, p_payload => :payload)',
        [
            'instruction' => $invoice,
            'participant' => 'acme',
            'key' => 'pay',
            'rail' => 'sepa',
            'payload' => json(['amount' => $money, 'destination' => ['iban' => $iban]]),
        ],
    );
    $event = [
        'envelope' => [
            'v' => 1,
            'eventId' => $stored['event_id'],
            'occurredAt' => $stored['occurred_at'],
            'tenantId' => 'tnt_1',
            'type' => 'events.invoices.paying',
        ],
        'key' => ['invoiceId' => $invoice], // events of one invoice are published in order
        'payload' => ['invoiceId' => $invoice, 'amount' => $money], // ids and figures, never personal data
    ];
    $told = one(
        $connection,
        'SELECT duplicate FROM symphony.enqueue_event_outbox(p_event => :event)',
        ['event' => json($event)],
    );
    expect($told['duplicate'] === $payment['duplicate'], 'payment and event are new together, or known together');
    return $payment;
}

function one(PDO $connection, string $sql, array $values): array
{
    $statement = $connection->prepare($sql);
    $statement->execute($values);
    return $statement->fetch();
}

function json(array $value): string
{
    return json_encode($value, JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE);
}

// One business transaction.
function transaction(PDO $connection, callable $work): mixed
{
    $connection->beginTransaction();
    try {
        $result = $work();
        $connection->commit();
        return $result;
    } catch (Throwable $error) {
        $connection->rollBack();
        throw $error;
    }
}

function pay(PDO $connection, string $invoice, string $amount, string $iban): array
{
    return transaction($connection, fn () => ask($connection, $invoice, $amount, $iban));
}

function connect(string $url): PDO
{
    $url = parse_url($url);
    return new PDO(
        sprintf('pgsql:host=%s;port=%d;dbname=%s', $url['host'], $url['port'] ?? 5432, ltrim($url['path'], '/')),
        rawurldecode($url['user']),
        rawurldecode($url['pass'] ?? ''),
        [
            PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
            PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC,
            // Emulated ones would write the values into the SQL, and so into the server's log.
            PDO::ATTR_EMULATE_PREPARES => false,
            // Values still travel beside the SQL, but no statement gets a name, which a transaction pooler would lose.
            PDO::PGSQL_ATTR_DISABLE_PREPARES => true,
        ],
    );
}

function expect(bool $holds, string $claim): void
{
    if (!$holds) {
        fwrite(STDERR, "expected: $claim\n");
        exit(1);
    }
}

expect($argc === 4, 'php producer.php INVOICE AMOUNT IBAN');
[, $invoice, $amount, $iban] = $argv;
$connection = connect(getenv('DATABASE_URL'));

$first = pay($connection, $invoice, $amount, $iban);
echo $first['duplicate'] ? 'known already' : 'new', ": {$first['outbox_id']}\n";

// Did the COMMIT's answer get lost? Do it all again.
$again = pay($connection, $invoice, $amount, $iban);
expect($again['duplicate'] && $again['outbox_id'] === $first['outbox_id'], 'the same request is the same payment');
echo "known already: {$again['outbox_id']}\n";

// The same name for another request: refused, and the invoice's new amount is rolled back with it.
try {
    pay($connection, $invoice, '0.01', $iban);
    expect(false, 'another request under the same name is refused');
} catch (PDOException $error) {
    expect($error->getCode() === 'P7004', "P7004 and not {$error->getCode()}");
    echo "refused: {$error->getCode()}\n";
}

// A transaction that is rolled back leaves nothing: the second time everything is new again.
for ($time = 0; $time < 2; $time++) {
    $connection->beginTransaction();
    $cancelled = ask($connection, "$invoice-cancelled", $amount, $iban);
    expect(!$cancelled['duplicate'], 'nothing is left of a rolled back transaction');
    $connection->rollBack();
}
echo "rolled back: nothing is left\n";

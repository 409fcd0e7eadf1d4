# A producer in Ruby with pg: invoice, payment and event commit together, or not at all.
#
#   ruby examples/ruby/producer.rb INVOICE AMOUNT IBAN      (DATABASE_URL; see examples/README.md)

require "json"
require "pg"

Cancelled = Class.new(StandardError)

def expect(claim, holds)
  abort "expected: #{claim}" unless holds
end

# Inside the caller's transaction: first the caller's own state, then the payment and the event, which lock.
# exec_params sends values beside the SQL, and gives the statement no name: it works behind a transaction pooler too.
def ask(connection, invoice, amount, iban)
  stored = connection.exec_params(<<~SQL, [invoice, amount]).first
    INSERT INTO public.example_invoices (id, amount, state) VALUES ($1, $2::numeric, 'paying')
    ON CONFLICT (id) DO UPDATE SET amount = excluded.amount RETURNING event_id, occurred_at
  SQL
  money = { value: amount, currency: "EUR" } # a text: a float would change it
  payload = { amount: money, destination: { iban: iban } }
  payment = connection.exec_params(<<~SQL, [invoice, "acme", "pay", "sepa", JSON.generate(payload)]).first
    SELECT outbox_id, duplicate FROM symphony.enqueue_payment_outbox(p_instruction_id => $1,
        p_participant_id => $2, p_idempotency_key => $3, p_rail_type => $4, p_payload => $5)
  SQL
  event = {
    envelope: {
      v: 1,
      eventId: stored["event_id"],
      occurredAt: stored["occurred_at"],
      tenantId: "tnt_1",
      type: "events.invoices.paying"
    },
    key: { invoiceId: invoice }, # events of one invoice are published in order
    payload: { invoiceId: invoice, amount: money } # ids and figures, never personal data
  }
  told = connection.exec_params(<<~SQL, [JSON.generate(event)]).first
    SELECT duplicate FROM symphony.enqueue_event_outbox(p_event => $1)
  SQL
  expect "payment and event are new together, or known together", told["duplicate"] == payment["duplicate"]
  payment
end

# pg gives every value as text.
def known?(payment)
  payment["duplicate"] == "t"
end

# One business transaction: the block commits at its end, and rolls back on an exception.
def pay(connection, invoice, amount, iban)
  connection.transaction { ask(connection, invoice, amount, iban) }
end

abort "usage: ruby producer.rb INVOICE AMOUNT IBAN" unless ARGV.size == 3
invoice, amount, iban = ARGV
connection = PG.connect(ENV.fetch("DATABASE_URL"))

first = pay(connection, invoice, amount, iban)
puts "#{known?(first) ? "known already" : "new"}: #{first["outbox_id"]}"

# Did the COMMIT's answer get lost? Do it all again.
again = pay(connection, invoice, amount, iban)
expect "the same request is the same payment", known?(again) && again["outbox_id"] == first["outbox_id"]
puts "known already: #{again["outbox_id"]}"

# The same name for another request: refused, and the invoice's new amount is rolled back with it.
begin
  pay(connection, invoice, "0.01", iban)
  expect "another request under the same name is refused", false
rescue PG::Error => error
  sqlstate = error.result.error_field(PG::Result::PG_DIAG_SQLSTATE)
  expect "P7004 and not #{sqlstate}", sqlstate == "P7004"
  puts "refused: #{sqlstate}"
end

# A transaction that is rolled back leaves nothing: the second time everything is new again.
2.times do
  connection.transaction do
    cancelled = ask(connection, "#{invoice}-cancelled", amount, iban)
    expect "nothing is left of a rolled back transaction", !known?(cancelled)
    raise Cancelled
  end
rescue Cancelled
  next
end
puts "rolled back: nothing is left"
connection.close

// A producer in Go with pgx: invoice, payment and event commit together, or not at all.
//
//	cd examples/go && go run . INVOICE AMOUNT IBAN      (DATABASE_URL; see examples/README.md)
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
)

type payment struct {
	outboxID  string
	duplicate bool
}

type object map[string]any

// ask works inside the caller's transaction: first the caller's own state, then the payment and the event, which lock.
func ask(ctx context.Context, tx pgx.Tx, invoice, amount, iban string) (payment, error) {
	var eventID, occurredAt string
	err := tx.QueryRow(ctx,
		`INSERT INTO public.example_invoices (id, amount, state) VALUES ($1, $2::numeric, 'paying')
		 ON CONFLICT (id) DO UPDATE SET amount = excluded.amount RETURNING event_id::text, occurred_at`,
		invoice, amount).Scan(&eventID, &occurredAt)
	if err != nil {
		return payment{}, err
	}
	money := object{"value": amount, "currency": "EUR"} // a text: a float would change it
	// The cast lets every mode of pgx know that the text is JSON.
	var asked payment
	err = tx.QueryRow(ctx,
		`SELECT outbox_id::text, duplicate FROM symphony.enqueue_payment_outbox(p_instruction_id => $1,
		     p_participant_id => $2, p_idempotency_key => $3, p_rail_type => $4, p_payload => $5::jsonb)`,
		invoice, "acme", "pay", "sepa",
		text(object{"amount": money, "destination": object{"iban": iban}}),
	).Scan(&asked.outboxID, &asked.duplicate)
	if err != nil {
		return payment{}, err
	}
	event := object{
		"envelope": object{
			"v":          1,
			"eventId":    eventID,
			"occurredAt": occurredAt,
			"tenantId":   "tnt_1",
			"type":       "events.invoices.paying",
		},
		"key":     object{"invoiceId": invoice},                  // events of one invoice are published in order
		"payload": object{"invoiceId": invoice, "amount": money}, // ids and figures, never personal data
	}
	var told bool
	err = tx.QueryRow(ctx, `SELECT duplicate FROM symphony.enqueue_event_outbox(p_event => $1::jsonb)`, text(event)).Scan(&told)
	expect(err != nil || told == asked.duplicate, "payment and event are new together, or known together")
	return asked, err
}

func text(value object) string {
	encoded, err := json.Marshal(value)
	if err != nil {
		log.Fatal(err) // texts and one number: it cannot fail
	}
	return string(encoded)
}

// pay is one business transaction.
func pay(ctx context.Context, connection *pgx.Conn, invoice, amount, iban string) (payment, error) {
	tx, err := connection.Begin(ctx)
	if err != nil {
		return payment{}, err
	}
	defer tx.Rollback(ctx) // after Commit it does nothing
	asked, err := ask(ctx, tx, invoice, amount, iban)
	if err != nil {
		return payment{}, err
	}
	return asked, tx.Commit(ctx)
}

func run(ctx context.Context, invoice, amount, iban string) error {
	connection, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer connection.Close(ctx)

	first, err := pay(ctx, connection, invoice, amount, iban)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s\n", map[bool]string{false: "new", true: "known already"}[first.duplicate], first.outboxID)

	// Did the COMMIT's answer get lost? Do it all again.
	again, err := pay(ctx, connection, invoice, amount, iban)
	if err != nil {
		return err
	}
	expect(again == payment{first.outboxID, true}, "the same request is the same payment")
	fmt.Println("known already:", again.outboxID)

	// The same name for another request: refused, and the invoice's new amount is rolled back with it.
	_, err = pay(ctx, connection, invoice, "0.01", iban)
	var refusal interface{ SQLState() string } // a *pgconn.PgError
	expect(errors.As(err, &refusal), "another request under the same name is refused")
	expect(refusal.SQLState() == "P7004", "P7004 and not "+refusal.SQLState())
	fmt.Println("refused:", refusal.SQLState())

	// A transaction that is rolled back leaves nothing: the second time everything is new again.
	for time := 0; time < 2; time++ {
		tx, err := connection.Begin(ctx)
		if err != nil {
			return err
		}
		cancelled, err := ask(ctx, tx, invoice+"-cancelled", amount, iban)
		if err != nil {
			return err
		}
		expect(!cancelled.duplicate, "nothing is left of a rolled back transaction")
		if err := tx.Rollback(ctx); err != nil {
			return err
		}
	}
	fmt.Println("rolled back: nothing is left")
	return nil
}

func main() {
	log.SetFlags(0)
	expect(len(os.Args) == 4, "go run . INVOICE AMOUNT IBAN")
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

func expect(holds bool, claim string) {
	if !holds {
		log.Fatal("expected: ", claim)
	}
}

//go:build ignore

// A consumer in Go with pgx, behind `symphony consume`: keeps balances, each event applied once.
//
//	cd examples/go && go run consumer.go 127.0.0.1:8080      (DATABASE_URL; see examples/README.md)
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/jackc/pgx/v5"
)

type event struct {
	Envelope struct {
		EventID string `json:"eventId"`
	} `json:"envelope"`
	Key     map[string]string `json:"key"`
	Payload struct {
		Cents *int64 `json:"cents"`
	} `json:"payload"`
}

// apply writes the inbox row and the effect in one transaction. False if the event was applied before.
func apply(ctx context.Context, connection *pgx.Conn, told event) (bool, error) {
	tx, err := connection.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer tx.Rollback(ctx) // after Commit it does nothing
	var first bool
	err = tx.QueryRow(ctx, `SELECT symphony.record_event_inbox(p_consumer => $1, p_event_id => $2::text::uuid)`,
		"balances", told.Envelope.EventID).Scan(&first)
	if err != nil {
		return false, err
	}
	if first {
		if told.Payload.Cents == nil {
			return false, errors.New("payload.cents is missing")
		}
		for _, account := range told.Key { // exactly one
			_, err = tx.Exec(ctx,
				`INSERT INTO public.example_balances AS b (account, cents) VALUES ($1, $2)
				 ON CONFLICT (account) DO UPDATE SET cents = b.cents + excluded.cents`, account, *told.Payload.Cents)
			if err != nil {
				return false, err
			}
		}
	}
	return first, tx.Commit(ctx)
}

func handle(response http.ResponseWriter, request *http.Request) {
	ctx := request.Context()
	var told event
	if err := json.NewDecoder(request.Body).Decode(&told); err != nil {
		http.Error(response, "no event", http.StatusBadRequest)
		return
	}
	// A pool (pgxpool) would do the same with fewer connections.
	connection, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		// The database is away: nothing is wrong with the event, and this counts as no try.
		response.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer connection.Close(context.Background())
	first, err := apply(ctx, connection, told)
	if err != nil {
		log.Printf("not applied: %T", err)
		response.WriteHeader(http.StatusInternalServerError)
		return
	}
	response.WriteHeader(http.StatusNoContent) // only now, after the commit
	fmt.Println(map[bool]string{true: "applied", false: "known already"}[first], told.Envelope.EventID)
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: go run consumer.go HOST:PORT")
	}
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening on", listener.Addr())
	log.Fatal(http.Serve(listener, http.HandlerFunc(handle)))
}

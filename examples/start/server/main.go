// Server is a program that keeps its data in a Holdfast server: holdfast serve, whose address and token it finds in
// HOLDFAST_URL and HOLDFAST_TOKEN.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/store/message"
)

func main() {
	ctx := context.Background()
	c, err := client.New(os.Getenv("HOLDFAST_URL"), client.Options{Token: os.Getenv("HOLDFAST_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	shop := c.Namespace(message.Default) // with the methods of an embedded message.Namespace

	placed := message.Message{Type: "Placed", Data: []byte(`{"items":3}`)}
	_, err = shop.WriteAfter(ctx, "order-17", message.NoStream, placed)
	if errors.Is(err, message.ErrConflict) {
		fmt.Println("order-17 is there already")
	} else if err != nil {
		log.Fatal(err)
	}

	// Whatever level the server has, this is answered once it survives power loss.
	paid := message.Message{Type: "Paid", Data: []byte(`{"amount":5}`), ID: "0a0e6d9e-6a1c-4d8f-9d8e-0c52a8a3b7c1"}
	if _, err := shop.Write(holdfast.WithLevel(ctx, holdfast.Power), "order-17", paid); err != nil {
		log.Fatal(err)
	}

	// Follow does not end by itself. When the server was away, it goes on where it was.
	for m, err := range shop.Follow(ctx, message.Query{Category: "order"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(m.Stream, m.Position, m.Type, string(m.Data))
		if m.Type == "Paid" {
			break
		}
	}
}

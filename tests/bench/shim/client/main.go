// Command client makes unary calls one after the other over one connection, each with a deadline,
// as cluster-autoscaler does, and prints what they took as one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"kwok-operator/tests/bench/shim/raw"
)

type result struct {
	Calls int     `json:"calls"`
	P50   float64 `json:"p50_us"`
	P99   float64 `json:"p99_us"`
	Rate  float64 `json:"calls_per_second"`
}

func main() {
	target := flag.String("target", "", "host:port or unix:/path")
	calls := flag.Int("calls", 5000, "calls to measure")
	warmup := flag.Int("warmup", 1000, "calls before that")
	request := flag.Int("request", 300, "bytes of a request")
	reply := flag.Int("reply", 24, "bytes that a reply must have")
	timeout := flag.Duration("timeout", 5*time.Second, "deadline of each call; 0 for none")
	unimplemented := flag.Bool("unimplemented", false, "call what is answered with that code")
	flag.Parse()

	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw.Codec{})),
	}
	connection, err := grpc.NewClient(*target, options...)
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()

	method, expected := raw.Method, codes.OK
	if *unimplemented {
		method, expected, *reply = raw.Unimplemented, codes.Unimplemented, 0
	}
	message := []byte(strings.Repeat("r", *request))
	call := func() time.Duration {
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if *timeout > 0 {
			ctx, cancel = context.WithTimeout(ctx, *timeout)
		}
		defer cancel()
		var answer []byte
		started := time.Now()
		err := connection.Invoke(ctx, method, &message, &answer)
		took := time.Since(started)
		if status.Code(err) != expected {
			log.Fatalf("%v, not %v", err, expected)
		}
		if len(answer) != *reply {
			log.Fatalf("%d bytes, not %d", len(answer), *reply)
		}
		return took
	}
	for range *warmup {
		call()
	}
	took := make([]time.Duration, *calls)
	started := time.Now()
	for i := range took {
		took[i] = call()
	}
	total := time.Since(started)
	slices.Sort(took)
	micros := func(share float64) float64 {
		return float64(took[int(share*float64(len(took)-1))].Nanoseconds()) / 1e3
	}
	out := result{*calls, micros(0.5), micros(0.99), float64(*calls) / total.Seconds()}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		log.Fatal(err)
	}
}

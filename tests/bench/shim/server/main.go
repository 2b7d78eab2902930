// Command server answers each request with the bytes that a map holds for it, over gRPC: what a
// plain Go server costs, for comparison.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"path"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kwok-operator/tests/bench/shim/raw"
)

var answers = map[string][]byte{}

func answer(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var request []byte
	if err := decode(&request); err != nil {
		return nil, err
	}
	reply := answers[string(request)]
	return &reply, nil
}

func refuse(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var request []byte
	if err := decode(&request); err != nil {
		return nil, err
	}
	return nil, status.Error(codes.Unimplemented, "the group sets no options of its own")
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "host:port or unix:/path")
	request := flag.Int("request", 300, "bytes of a request")
	reply := flag.Int("reply", 24, "bytes of a reply")
	flag.Parse()

	answers[strings.Repeat("r", *request)] = []byte(strings.Repeat("a", *reply))
	network, address := "tcp", *listen
	if file, ok := strings.CutPrefix(*listen, "unix:"); ok {
		network, address = "unix", file
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodec(raw.Codec{}))
	service, _, _ := strings.Cut(strings.TrimPrefix(raw.Method, "/"), "/")
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		Methods: []grpc.MethodDesc{
			{MethodName: path.Base(raw.Method), Handler: answer},
			{MethodName: path.Base(raw.Unimplemented), Handler: refuse},
		},
	}, nil)
	fmt.Println("listening", listener.Addr())
	log.Fatal(server.Serve(listener))
}

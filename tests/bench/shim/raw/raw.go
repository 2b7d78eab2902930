// Package raw has gRPC hand over messages as the bytes they are, so that no generated code is
// needed and what is measured is the transport alone.
package raw

import "fmt"

const (
	// Method is what the client calls and the server answers.
	Method = "/kwok.bench.Shim/NodeGroupForNode"
	// Unimplemented is answered with that code, and a sentence.
	Unimplemented = "/kwok.bench.Shim/NodeGroupGetOptions"
)

// Codec is for grpc.ForceCodec and grpc.ForceServerCodec; messages are *[]byte.
type Codec struct{}

func (Codec) Marshal(v any) ([]byte, error) {
	message, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("marshalling %T: not *[]byte", v)
	}
	return *message, nil
}

func (Codec) Unmarshal(data []byte, v any) error {
	message, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("unmarshalling %T: not *[]byte", v)
	}
	*message = append((*message)[:0], data...)
	return nil
}

// Name is that of the default, so that the content type stays application/grpc+proto.
func (Codec) Name() string { return "proto" }

// Command messages proves that messages are the same on the wire here and there. It prints, for each message of
// the protocol, its name and its encoding in base64, with every field set, by reflection. Then it reads lines of
// that form, decodes them, and fails if a message is not what it was.
//
//	messages
package main

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// depth bounds messages in messages: none is in itself.
const depth = 8

// notOnTheWire is for plugins in WebAssembly, which do not speak ttrpc.
const notOnTheWire = "LogRequest"

func main() {
	messages := map[string]protoreflect.MessageDescriptor{}
	all := api.File_pkg_api_api_proto.Messages()
	marshal := proto.MarshalOptions{Deterministic: true}
	for at := range all.Len() {
		descriptor := all.Get(at)
		name := string(descriptor.Name())
		if name == notOnTheWire {
			continue
		}
		messages[name] = descriptor
		encoded, err := marshal.Marshal(full(descriptor, 1, depth))
		if err != nil {
			fail(name, err)
		}
		fmt.Println(name, base64.StdEncoding.EncodeToString(encoded))
	}
	fmt.Println("end")
	count := 0
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<24)
	for input.Scan() && input.Text() != "end" {
		name, text, _ := strings.Cut(input.Text(), " ")
		descriptor, known := messages[name]
		encoded, err := base64.StdEncoding.DecodeString(text)
		if err != nil || !known {
			fail(name, fmt.Errorf("known: %v, %v", known, err))
		}
		delete(messages, name)
		message := dynamicpb.NewMessage(descriptor)
		if err := proto.Unmarshal(encoded, message); err != nil {
			fail(name, err)
		}
		if expected := full(descriptor, 1, depth); !proto.Equal(message, expected) {
			fail(name, fmt.Errorf("it is %v and not %v", message, expected))
		}
		if len(message.GetUnknown()) != 0 {
			fail(name, fmt.Errorf("it has fields that are not known"))
		}
		count++
	}
	for name := range messages {
		fail(name, fmt.Errorf("it has not come back"))
	}
	fmt.Println("ok", count, "messages")
}

func fail(name string, err error) {
	fmt.Println("FAIL", name+":", err)
	os.Exit(1)
}

// full returns a message with every field set, to values that differ.
func full(descriptor protoreflect.MessageDescriptor, seed int, depth int) *dynamicpb.Message {
	message := dynamicpb.NewMessage(descriptor)
	fields := descriptor.Fields()
	for at := range fields.Len() {
		field := fields.Get(at)
		seed := seed*31 + at + 1
		switch {
		case field.IsMap():
			entries := message.Mutable(field).Map()
			for more := range 2 {
				key := value(field.MapKey(), seed+more, depth).MapKey()
				entries.Set(key, value(field.MapValue(), seed+more+2, depth))
			}
		case field.IsList():
			list := message.Mutable(field).List()
			for more := range 3 {
				list.Append(value(field, seed+more, depth))
			}
		default:
			message.Set(field, value(field, seed, depth))
		}
	}
	return message
}

func value(field protoreflect.FieldDescriptor, seed, depth int) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		values := field.Enum().Values()
		// Not the first one, which is not written; and of a list one that is unknown.
		number := values.Get(1 + seed%(values.Len()-1)).Number()
		if field.IsList() && seed%3 == 0 {
			number = 1000
		}
		return protoreflect.ValueOfEnum(number)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(-seed))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(-seed) << 33)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(seed) | 1<<31)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(seed) | 1<<63)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprintf("%s-%d-é", field.Name(), seed))
	case protoreflect.MessageKind:
		if depth == 0 {
			panic("a message is in itself")
		}
		return protoreflect.ValueOfMessage(full(field.Message(), seed%1000, depth-1))
	}
	panic(fmt.Sprintf("%s: kind %s", field.FullName(), field.Kind()))
}

// grpc-try is a server and a client of gRPC for the tests, made of the library that most programs use.
//
//	grpc-try server ADDRESS [CERTIFICATE KEY]
//	grpc-try client ADDRESS [AUTHORITY-FILE]
//
// Both read commands from standard input and tell events on standard output, one a line. Messages are bytes, without a
// schema. The server does what a message says, and sends any other message back:
//
//	status CODE TEXT   ends the call with a status
//	size N             sends a message of N bytes
//	burst N            sends N messages
//	told               sends what the server was told of the call: its deadline and fields
//	hold               waits until a line comes on standard input
//	wait               waits until the call is over
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const mostBytes = 64 << 20

type bytesCodec struct{}

func (bytesCodec) Name() string                  { return "bytes" }
func (bytesCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), b...)
	return nil
}

var methods = []grpc.StreamDesc{
	{StreamName: "Unary"},
	{StreamName: "Download", ServerStreams: true},
	{StreamName: "Upload", ClientStreams: true},
	{StreamName: "Chat", ServerStreams: true, ClientStreams: true},
}

var (
	out     sync.Mutex
	release = make(chan struct{})
)

func say(format string, args ...any) {
	out.Lock()
	defer out.Unlock()
	fmt.Printf(format+"\n", args...)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: grpc-try server|client ADDRESS [...]")
		os.Exit(2)
	}
	if os.Args[1] == "server" {
		serve(os.Args[2], os.Args[3:])
	} else {
		ask(os.Args[2], os.Args[3:])
	}
}

func serve(address string, files []string) {
	listener, err := net.Listen("tcp", address)
	check(err)
	options := []grpc.ServerOption{grpc.ForceServerCodec(bytesCodec{}), grpc.MaxRecvMsgSize(mostBytes)}
	if len(files) == 2 {
		certificate, err := credentials.NewServerTLSFromFile(files[0], files[1])
		check(err)
		options = append(options, grpc.Creds(certificate))
	}
	server := grpc.NewServer(options...)
	description := grpc.ServiceDesc{ServiceName: "try.Try", HandlerType: (*any)(nil)}
	for _, method := range methods {
		method.Handler = answer
		description.Streams = append(description.Streams, method)
	}
	server.RegisterService(&description, nil)
	say("listens on %s", listener.Addr())
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			release <- struct{}{}
		}
	}()
	check(server.Serve(listener))
}

func answer(_ any, stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	name := full[strings.LastIndex(full, "/")+1:]
	say("begins %s", name)
	err := answerAs(name, stream)
	if stream.Context().Err() != nil {
		say("is left alone in %s: %v", name, stream.Context().Err())
	} else {
		say("ends %s %s", name, status.Code(err))
	}
	return err
}

func answerAs(name string, stream grpc.ServerStream) error {
	if name != "Chat" {
		stream.SetTrailer(metadata.Pairs("x-end", name))
	}
	received := 0
	for {
		var message []byte
		err := stream.RecvMsg(&message)
		if errors.Is(err, io.EOF) {
			if name == "Upload" {
				total := []byte(strconv.Itoa(received))
				return stream.SendMsg(&total)
			}
			return nil
		}
		if err != nil {
			return err
		}
		received += len(message)
		if name == "Upload" {
			continue
		}
		if err := obey(stream, message); err != nil {
			return err
		}
		if name == "Unary" || name == "Download" {
			return nil
		}
	}
}

func obey(stream grpc.ServerStream, message []byte) error {
	word, rest, _ := strings.Cut(string(message[:min(len(message), 200)]), " ")
	number, _ := strconv.Atoi(strings.Fields(rest + " 0")[0])
	switch word {
	case "status":
		_, text, _ := strings.Cut(rest, " ")
		return status.Error(codes.Code(number), text)
	case "size":
		message = make([]byte, number)
	case "burst":
		for i := range number {
			part := []byte(strconv.Itoa(i))
			if err := stream.SendMsg(&part); err != nil {
				return err
			}
		}
		return nil
	case "told":
		told := "none"
		if end, has := stream.Context().Deadline(); has {
			told = strconv.FormatInt(time.Until(end).Milliseconds(), 10)
		}
		fields, _ := metadata.FromIncomingContext(stream.Context())
		message = []byte(fmt.Sprintf("deadline_ms=%s %v", told, fields))
	case "hold":
		select {
		case <-release:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	case "wait":
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	return stream.SendMsg(&message)
}

type call struct {
	stream grpc.ClientStream
	cancel context.CancelFunc
}

// Commands of the client; every call has a number of the caller's choice:
//
//	unary N TIMEOUT MESSAGE      a whole call; TIMEOUT may be 0
//	open N TIMEOUT METHOD [FIELD VALUE]
//	send N MESSAGE               bytes N BYTES sends a message of so many bytes
//	close N                      ends the client's side
//	cancel N
func ask(address string, files []string) {
	security := insecure.NewCredentials()
	if len(files) == 1 {
		pem, err := os.ReadFile(files[0])
		check(err)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		security = credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "localhost"})
	}
	options := grpc.WithDefaultCallOptions(grpc.ForceCodec(bytesCodec{}), grpc.MaxCallRecvMsgSize(mostBytes))
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(security), options)
	check(err)
	calls := map[string]*call{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.SplitN(lines.Text(), " ", 3)
		command, number, rest := words[0], words[1], strings.Join(words[2:], "")
		switch command {
		case "unary":
			timeout, message, _ := strings.Cut(rest, " ")
			context, cancel := within(timeout)
			calls[number] = &call{nil, cancel}
			go unary(context, connection, number, message)
		case "open":
			fields := strings.Fields(rest)
			context, cancel := within(fields[0])
			if len(fields) == 4 {
				context = metadata.AppendToOutgoingContext(context, fields[2], fields[3])
			}
			stream, err := connection.NewStream(context, description(fields[1]), "/try.Try/"+fields[1])
			if err != nil {
				tell(number, err, nil)
				continue
			}
			calls[number] = &call{stream, cancel}
			go receive(number, stream)
		case "send", "bytes":
			message := []byte(rest)
			if command == "bytes" {
				size, err := strconv.Atoi(rest)
				check(err)
				message = make([]byte, size)
			}
			// What goes wrong is told by the end of the call.
			_ = calls[number].stream.SendMsg(&message)
		case "close":
			_ = calls[number].stream.CloseSend()
		case "cancel":
			calls[number].cancel()
		}
	}
}

func within(timeout string) (context.Context, context.CancelFunc) {
	duration, err := time.ParseDuration(timeout)
	check(err)
	if duration == 0 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), duration)
}

func description(name string) *grpc.StreamDesc {
	for i := range methods {
		if methods[i].StreamName == name {
			return &methods[i]
		}
	}
	return &grpc.StreamDesc{StreamName: name, ServerStreams: true, ClientStreams: true}
}

func unary(context context.Context, connection *grpc.ClientConn, number, message string) {
	var answer []byte
	var trailer metadata.MD
	asked := []byte(message)
	err := connection.Invoke(context, "/try.Try/Unary", &asked, &answer, grpc.Trailer(&trailer))
	if err == nil {
		show(number, answer)
	}
	tell(number, err, trailer)
}

func receive(number string, stream grpc.ClientStream) {
	for {
		var message []byte
		err := stream.RecvMsg(&message)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			tell(number, err, stream.Trailer())
			return
		}
		show(number, message)
	}
}

func show(number string, message []byte) {
	if len(message) > 500 {
		say("%s bytes %d", number, len(message))
	} else {
		say("%s message %s", number, message)
	}
}

func tell(number string, err error, trailer metadata.MD) {
	said := status.Convert(err)
	say("%s status %d %s %v", number, said.Code(), said.Message(), trailer)
}

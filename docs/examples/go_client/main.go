// SPDX-License-Identifier: Apache-2.0
// A client of Foretoken: client HOST:PORT PROMPT
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "example.com/client/foretokenv1"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: client HOST:PORT PROMPT")
	}
	connection, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	temperature, seed, maxTokens := float32(0.8), uint64(7), uint32(64)
	stream, err := pb.NewGenerationServiceClient(connection).Generate(ctx, &pb.GenerateRequest{
		Prompt:   &pb.GenerateRequest_Text{Text: os.Args[2]},
		Sampling: &pb.SamplingOptions{Temperature: &temperature, Seed: &seed},
		Stopping: &pb.StoppingOptions{MaxTokens: &maxTokens},
	})
	if err != nil {
		log.Fatal(err)
	}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			log.Fatal(err) // code and message: "rpc error: code = InvalidArgument desc = sampling.temperature: ..."
		}
		fmt.Print(response.Text)
		if completion := response.Completion; completion != nil { // the last message of the sample
			if reason := completion.FinishReason; reason == pb.FinishReason_FINISH_REASON_ABORT ||
				reason == pb.FinishReason_FINISH_REASON_SHUTDOWN {
				log.Fatal("the server ended the request early")
			}
			fmt.Fprintf(os.Stderr, "\n%d tokens in %d steps, seed %d\n",
				completion.Usage.CompletionTokens, completion.Usage.Steps, completion.Seed)
		}
	}
}

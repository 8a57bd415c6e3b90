# SPDX-License-Identifier: Apache-2.0
"""OpenAI's client, the SMG gateway, a verifier and two proposers: what a user of a gateway gets. A second verifier behind
a second gateway never speculates, and must give the same answers."""
import concurrent.futures
import http.client
import json
import statistics
import time
import unittest

import grpc
import openai
from smg_grpc_proto import vllm_engine_pb2 as contract
from smg_grpc_proto import vllm_engine_pb2_grpc as contract_services

import fleet
from fleet import MODEL

# Repetitive text, so that proposers can guess.
PROMPT = ("def get_alpha(self):\n    return self.alpha\n\ndef get_beta(self):\n    return self.beta\n\n"
          "def get_gamma(self):\n")
TOOLS = [{"type": "function", "function": {
    "name": "look_up", "description": "finds a word",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}}}]


def setUpModule():
    global proposers, verifier, plain_verifier, gateway, plain_gateway, client, plain_client
    proposers = [fleet.Service("foretoken_proposer", f"--method={method}") for method in ("ngram", "suffix")]
    ngram, suffix = (proposer.address for proposer in proposers)
    verifier = fleet.Verifier(f"--proposer=ngram=static:{ngram};suffix=static:{suffix}")
    plain_verifier = fleet.Verifier()
    gateway = fleet.Gateway(f"grpc://{verifier.address}")
    plain_gateway = fleet.Gateway(f"grpc://{plain_verifier.address}")
    client, plain_client = gateway.client(), plain_gateway.client()


def tearDownModule():
    fleet.end(gateway, plain_gateway, verifier, plain_verifier, *proposers)


def complete(of=None, **options):
    options = {"model": MODEL, "prompt": PROMPT, "max_tokens": 40, "temperature": 0} | options
    return (of or client).completions.create(**options)


def chat(of=None, **options):
    options = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 40,
               "temperature": 0} | options
    return (of or client).chat.completions.create(**options)


def accepted_guesses(answer):
    details = answer.usage.completion_tokens_details
    return details.accepted_prediction_tokens if details else 0


class Answers(unittest.TestCase):
    def test_a_stream_and_a_whole_answer_are_the_same_text(self):
        whole = complete()
        self.assertEqual(whole.choices[0].finish_reason, "length")
        pieces = list(complete(stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(piece.choices[0].text for piece in pieces if piece.choices), whole.choices[0].text)
        for usage in (whole.usage, pieces[-1].usage):
            self.assertEqual(usage.completion_tokens, 40)
            self.assertEqual(usage.prompt_tokens, whole.usage.prompt_tokens)
        whole, pieces = chat(), list(chat(stream=True))
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(pieces[-1].choices[0].finish_reason if pieces[-1].choices else "length", "length")

    def test_speculation_shows_in_the_usage_and_not_in_the_text(self):
        for options in ({"temperature": 0}, {"temperature": 0.8, "seed": 7}, {"temperature": 1, "seed": 3, "n": 3},
                        {"temperature": 0.9, "top_p": 0.8, "seed": 11, "stream": False}):
            with self.subTest(options):
                guessed, plain = complete(**options), complete(of=plain_client, **options)
                self.assertEqual([choice.text for choice in guessed.choices], [choice.text for choice in plain.choices])
        # On a busy machine the planner may find for a while that no guess pays.
        fleet.wait_for(lambda: accepted_guesses(complete(max_tokens=200)) > 0, "an accepted guess")
        for call in (complete, chat):
            guessed, plain = call(stream=False, seed=1), call(of=plain_client, stream=False, seed=1)
            self.assertEqual(guessed.choices[0].model_dump(), plain.choices[0].model_dump())

    def test_n_samples_differ_and_come_again_with_their_seed(self):
        texts = [choice.text for choice in complete(n=4, temperature=1, seed=5).choices]
        self.assertEqual(len(texts), 4)
        self.assertGreater(len(set(texts)), 1)
        self.assertEqual([choice.text for choice in complete(n=4, temperature=1, seed=5).choices], texts)
        streamed = ["", "", "", ""]
        for piece in complete(n=4, temperature=1, seed=5, stream=True):
            for choice in piece.choices:
                streamed[choice.index] += choice.text
        self.assertEqual(streamed, texts)

    def test_the_output_ends_before_a_stop_text(self):
        for stream in (False, True):
            answer = complete(stop=["\n\n"], stream=stream)
            pieces = list(answer) if stream else [answer]
            text = "".join(piece.choices[0].text for piece in pieces if piece.choices)
            self.assertNotIn("\n\n", text)
            self.assertTrue(complete().choices[0].text.startswith(text))
            self.assertEqual([piece for piece in pieces if piece.choices][-1].choices[0].finish_reason, "stop")

    def test_logprobs_are_of_the_tokens_and_the_best_one_was_drawn(self):
        for options in ({}, {"stream": True}):
            answer = chat(logprobs=True, top_logprobs=3, max_tokens=8, **options)
            choices = [piece.choices[0] for piece in answer if piece.choices] if options else answer.choices
            tokens = [token for choice in choices if choice.logprobs for token in choice.logprobs.content]
            self.assertEqual(len(tokens), 8)
            for token in tokens:
                self.assertLessEqual(token.logprob, 0)
                self.assertEqual(len(token.top_logprobs), 3)
                self.assertEqual(token.top_logprobs[0].logprob, token.logprob, "the temperature is 0")

    def test_tools_reach_the_prompt(self):
        # The demo model's own template does not show tools.
        front = fleet.Gateway(f"grpc://{verifier.address}", "--chat-template", fleet.HERE / "chat.jinja")
        self.addCleanup(lambda: fleet.end(front))
        without, with_tools = (chat(of=front.client(), max_tokens=4, **tools) for tools in ({}, {"tools": TOOLS}))
        self.assertGreater(with_tools.usage.prompt_tokens, without.usage.prompt_tokens + 20)
        self.assertEqual(with_tools.choices[0].finish_reason, "length")

    def test_the_models_own_sampling_defaults_hold_where_the_user_says_nothing(self):
        implied = complete(seed=9, temperature=openai.omit)
        stated = complete(seed=9, temperature=0.8, top_p=0.95)
        self.assertEqual(implied.choices[0].text, stated.choices[0].text)


class Errors(unittest.TestCase):
    def test_a_bad_value_is_400_and_names_the_field(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            complete(n=100)
        self.assertIn("sampling_params.n: expected at most 64, got 100", str(caught.exception))

    def test_an_unknown_model_is_404(self):
        with self.assertRaises(openai.NotFoundError):
            complete(model="another")

    def test_a_full_queue_is_429_and_a_dead_worker_503(self):
        small = fleet.Verifier("--max_queued_requests=1", "--max_running_samples=1")
        front = fleet.Gateway(f"grpc://{small.address}")
        self.addCleanup(lambda: fleet.end(front, small))
        caller = front.client()

        def attempt(_):
            try:
                return complete(of=caller, max_tokens=900).choices[0].finish_reason
            except openai.APIStatusError as error:
                return error.status_code

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            ends = list(pool.map(attempt, range(12)))
        self.assertIn(429, ends)
        self.assertTrue({"length", "stop"} & set(ends), ends)
        self.assertLessEqual(set(ends), {429, "length", "stop"})
        small.kill()
        fleet.wait_for(lambda: attempt(0) == 503, "503 without a worker")


class Faults(unittest.TestCase):
    def test_leaving_a_stream_ends_its_request(self):
        before = verifier.metric("foretoken_generated_tokens_total")
        stream = complete(max_tokens=900, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        fleet.wait_for(lambda: verifier.metric("foretoken_samples_running") == 0, "the end of the sample")
        self.assertLess(verifier.metric("foretoken_generated_tokens_total") - before, 900)

    def test_a_proposer_killed_in_the_middle_changes_no_token(self):
        proposer = fleet.Service("foretoken_proposer", "--method=ngram")
        guessing = fleet.Verifier(f"--proposer=ngram=static:{proposer.address}")
        front = fleet.Gateway(f"grpc://{guessing.address}")
        self.addCleanup(lambda: fleet.end(front, guessing))
        fleet.wait_for(lambda: guessing.metric("foretoken_proposer_replicas_connected") == 1, "the proposer")
        expected = complete(of=plain_client, max_tokens=400).choices[0].text
        text = ""
        for count, piece in enumerate(complete(of=front.client(), max_tokens=400, stream=True)):
            text += piece.choices[0].text if piece.choices else ""
            if count == 3:
                proposer.kill()
        self.assertEqual(text, expected)


class Frames(unittest.TestCase):
    """What gateways and pickers read of the answers themselves."""

    @classmethod
    def setUpClass(cls):
        cls.channel = grpc.insecure_channel(verifier.address)
        cls.stub = contract_services.VllmEngineStub(cls.channel)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()

    def request(self, **options):
        params = {"temperature": 0, "max_tokens": 12} | options.pop("params", {})
        return contract.GenerateRequest(text=PROMPT, sampling_params=contract.SamplingParams(**params), **options)

    def test_pickers_find_the_usage(self):
        # llm-d's picker looks at each message alone. It counts those with prompt or completion tokens, and sums them up.
        call = self.channel.unary_stream("/vllm.grpc.engine.VllmEngine/Generate",
                                         request_serializer=contract.GenerateRequest.SerializeToString,
                                         response_deserializer=bytes)
        for stream in (False, True):
            with self.subTest(stream=stream):
                messages = [contract.GenerateResponse.FromString(raw) for raw in call(self.request(stream=stream))]
                kinds = [message.WhichOneof("response") for message in messages]
                self.assertEqual(kinds[-1], "complete")
                self.assertEqual(set(kinds[:-1]), {"chunk"} if stream else set())
                parts = [getattr(message, kind) for message, kind in zip(messages, kinds)]
                self.assertEqual({part.prompt_tokens for part in parts}, {parts[-1].prompt_tokens})
                self.assertGreater(parts[-1].prompt_tokens, 0)
                counted = parts[:-1] if stream else parts
                self.assertEqual(sum(part.completion_tokens for part in counted), 12)
                if stream:
                    self.assertEqual(list(parts[-1].output_ids), list(parts[-2].token_ids))

    def test_prompt_logprobs_and_top_logprobs_have_one_entry_per_token(self):
        (answer,) = self.stub.Generate(self.request(params={"logprobs": 2, "prompt_logprobs": 1}))
        complete_message = answer.complete
        prompt = complete_message.input_logprobs
        self.assertEqual(len(prompt.token_ids), complete_message.prompt_tokens)
        self.assertEqual(len(prompt.top_logprobs), complete_message.prompt_tokens)
        self.assertFalse(prompt.token_logprobs[0].HasField("value"))
        self.assertTrue(all(each.HasField("value") for each in prompt.token_logprobs[1:]))
        output = complete_message.output_logprobs
        self.assertEqual(list(output.token_ids), list(complete_message.output_ids))
        self.assertTrue(all(len(top.token_ids) == 2 for top in output.top_logprobs))

    def test_biases_ends_and_counts_are_kept(self):
        (biased,) = self.stub.Generate(self.request(params={"logit_bias": {7: 1000}, "max_tokens": 3}))
        self.assertEqual(list(biased.complete.output_ids), [7, 7, 7])
        (stopped,) = self.stub.Generate(
            self.request(params={"logit_bias": {7: 1000}, "stop_token_ids": [7], "min_tokens": 0}))
        self.assertEqual(stopped.complete.finish_reason, "stop")
        self.assertEqual(stopped.complete.matched_token_id, 7)
        (forced,) = self.stub.Generate(
            self.request(params={"logit_bias": {4092: 1000}, "min_tokens": 4, "max_tokens": 9}))
        self.assertEqual(len(forced.complete.output_ids), 5, "four tokens, then the end")
        (endless,) = self.stub.Generate(self.request(params={"logit_bias": {4092: 1000}, "ignore_eos": True}))
        self.assertEqual(endless.complete.completion_tokens, 12)
        (cut,) = self.stub.Generate(self.request(params={"truncate_prompt_tokens": 3}))
        self.assertEqual(cut.complete.prompt_tokens, 3)

    def test_other_contracts_are_unimplemented(self):
        for method in ("/sglang.grpc.scheduler.SglangScheduler/HealthCheck", "/vllm.grpc.engine.VllmEngine/Embed",
                       "/vllm.grpc.engine.VllmEngine/SubscribeKvEvents"):
            with self.assertRaises(grpc.RpcError) as caught:
                self.channel.unary_unary(method)(b"")
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
        self.assertNotIn(" error ", verifier.log())
        self.assertNotIn(" warning ", verifier.log())


class Speed(unittest.TestCase):
    def test_the_gateway_adds_little_to_the_time_of_the_first_token(self):
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
        self.addCleanup(connection.close)
        channel = grpc.insecure_channel(verifier.address)
        self.addCleanup(channel.close)
        stub = contract_services.VllmEngineStub(channel)
        sampling = contract.SamplingParams(temperature=0, max_tokens=1)
        direct_request = contract.GenerateRequest(text="def f(x):", stream=True, sampling_params=sampling)
        body = json.dumps({"model": MODEL, "prompt": "def f(x):", "max_tokens": 1, "temperature": 0, "stream": True})

        def direct():
            stream = stub.Generate(direct_request)
            next(stream)
            came = time.perf_counter()
            list(stream)
            return came

        def through_the_gateway():
            connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.readline()
            came = time.perf_counter()
            answer.read()
            return came

        def seconds(call):
            began = time.perf_counter()
            return call() - began

        pairs = [(seconds(direct), seconds(through_the_gateway)) for _ in range(220)][20:]
        added_ms = 1e3 * statistics.median(through - alone for alone, through in pairs)
        print(f"the first token: {1e3 * statistics.median(alone for alone, _ in pairs):.2f} ms, and {added_ms:.2f} ms "
              f"more through the gateway; medians of {len(pairs)}")
        self.assertLess(added_ms, 5)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""Forms of the output through a gateway: JSON that follows a schema, any JSON, and calls of functions, with speculation on
and off."""
import json
import unittest

import grpc
from smg_grpc_proto import vllm_engine_pb2 as contract
from smg_grpc_proto import vllm_engine_pb2_grpc as contract_services

import fleet
from fleet import MODEL

SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "even"],
          "properties": {"name": {"type": "string", "enum": ["alpha", "beta"]}, "even": {"type": "boolean"}}}
TOOLS = [{"type": "function", "function": {"name": "look_up", "description": "finds a word", "parameters": SCHEMA}}]


def setUpModule():
    global proposer, verifier, plain_verifier, gateway, plain_gateway, client, plain_client
    proposer = fleet.Service("foretoken_proposer", "--method=ngram")
    verifier = fleet.Verifier(f"--proposer=ngram=static:{proposer.address}")
    plain_verifier = fleet.Verifier()
    gateway = fleet.Gateway(f"grpc://{verifier.address}")
    plain_gateway = fleet.Gateway(f"grpc://{plain_verifier.address}")
    client, plain_client = gateway.client(), plain_gateway.client()


def tearDownModule():
    fleet.end(gateway, plain_gateway, verifier, plain_verifier, proposer)


def chat(of, **options):
    options = {"model": MODEL, "messages": [{"role": "user", "content": "name a letter"}], "max_tokens": 200,
               "temperature": 1} | options
    return of.chat.completions.create(**options)


class Forms(unittest.TestCase):
    def check_schema(self, text):
        value = json.loads(text)
        self.assertEqual(set(value), {"name", "even"})
        self.assertIn(value["name"], ("alpha", "beta"))
        self.assertIsInstance(value["even"], bool)

    def test_every_answer_follows_the_schema_with_speculation_and_without(self):
        form = {"type": "json_schema", "json_schema": {"name": "letter", "schema": SCHEMA, "strict": True}}
        for seed in range(10):
            guessed, plain = (chat(of, response_format=form, seed=seed) for of in (client, plain_client))
            self.check_schema(guessed.choices[0].message.content)
            self.assertEqual(guessed.choices[0].finish_reason, "stop")
            self.assertEqual(guessed.choices[0].message.content, plain.choices[0].message.content)
            pieces = chat(client, response_format=form, seed=seed, stream=True)
            streamed = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
            self.assertEqual(streamed, guessed.choices[0].message.content)

    def test_a_required_call_has_valid_arguments(self):
        for seed in range(5):
            answers = [chat(of, tools=TOOLS, tool_choice="required", seed=seed) for of in (client, plain_client)]
            (call,) = answers[0].choices[0].message.tool_calls
            self.assertEqual(call.function.name, "look_up")
            self.check_schema(call.function.arguments)
            self.assertEqual(answers[0].choices[0].finish_reason, "tool_calls")
            (same,) = answers[1].choices[0].message.tool_calls
            self.assertEqual(call.function, same.function)

    def test_a_schema_that_is_none_is_400(self):
        form = {"type": "json_schema", "json_schema": {"name": "none", "schema": {"type": "nothing"}}}
        with self.assertRaisesRegex(Exception, "400.*sampling_params.json_schema"):
            chat(client, response_format=form)

    def test_every_constraint_of_the_contract(self):
        channel = grpc.insecure_channel(verifier.address)
        self.addCleanup(channel.close)
        stub = contract_services.VllmEngineStub(channel)
        constraints = {
            "regex": "(yes|no){2}", "grammar": 'root ::= "yes" | "no"',
            "choice": contract.ChoiceConstraint(choices=["yes", "no"]), "json_schema": json.dumps(SCHEMA),
            "structural_tag": json.dumps({"type": "structural_tag",
                                          "format": {"type": "const_string", "value": "yes"}})}
        for name, value in constraints.items():
            with self.subTest(name):
                params = contract.SamplingParams(max_tokens=200, seed=3, **{name: value})
                (answer,) = stub.Generate(contract.GenerateRequest(text="x", sampling_params=params))
                self.assertEqual(answer.complete.finish_reason, "stop", "every text of the form is short")

    def test_a_json_object_is_an_object(self):
        for seed in range(10):
            answer = chat(client, response_format={"type": "json_object"}, seed=seed).choices[0]
            if answer.finish_reason == "stop":
                self.assertIsInstance(json.loads(answer.message.content), dict)
            else:  # the model goes on and on
                self.assertEqual(answer.message.content.lstrip()[:1], "{")


if __name__ == "__main__":
    unittest.main()

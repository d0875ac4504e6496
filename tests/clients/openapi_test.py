"""GET /openapi.json by openapi-spec-validator from PyPI, and answers of `fathom serve` by the schemas in it."""
import json
import re
import unittest
import urllib.request

import skipping
import venv_python

venv_python.enter()

import jsonschema  # noqa: E402
from openapi_spec_validator import OpenAPIV31SpecValidator  # noqa: E402
from serving import Serving  # noqa: E402

MESSAGES = [{"role": "user", "content": "Hello"}]
REQUESTS = {
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 3, "logprobs": True},
    "/v1/completions": {"prompt": "Hello", "max_tokens": 3},
    "/v1/responses": {"input": "Hello", "max_output_tokens": 3},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 3},
    "/v1/messages/count_tokens": {"messages": MESSAGES},
    "/tokenize": {"prompt": "Hello"},
    "/detokenize": {"tokens": [5, 6]},
}
# It takes what /v1/messages takes, less what that requires: the document describes that once.
OF_ANOTHER_BODY = {"/v1/messages/count_tokens"}


class OpenApiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Serving()
        cls.addClassCleanup(cls.server.close)
        cls.document = cls.get("/openapi.json")

    @classmethod
    def get(cls, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(cls.server.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    def operations(self):
        return [operation for path in self.document["paths"].values() for operation in path.values()]

    def test_the_document_is_valid(self):
        OpenAPIV31SpecValidator(self.document).validate()

    def test_names_are_those_that_generators_take(self):
        for name in self.document["components"]["schemas"]:
            self.assertRegex(name, re.compile(r"^[A-Za-z0-9._-]+$"))
        ids = [operation["operationId"] for operation in self.operations()]
        self.assertEqual(len(set(ids)), len(ids))

    def test_answers_fit_what_it_says_of_them(self):
        for operation in self.operations():
            self.assertTrue(operation["responses"]["200"]["content"])
        for path, body in REQUESTS.items():
            with self.subTest(path):
                operation = self.document["paths"][path]["post"]
                schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
                self.assertTrue(schema["required"])
                jsonschema.validate(self.get(path, body), schema)
                if path in OF_ANOTHER_BODY:
                    continue
                reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                self.assertIn(reference.rpartition("/")[2], self.document["components"]["schemas"])
        schema = self.document["paths"]["/v1/models"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(self.get("/v1/models"), schema)


if __name__ == "__main__":
    skipping.main()

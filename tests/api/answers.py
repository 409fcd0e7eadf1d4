"""Compares what was asked and answered with the OpenAPI document: standard input is {document, exchanges}; a line for each that
differs, and `compared N` at the end."""

import copy
import json
import sys

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

given = json.load(sys.stdin)
document = given["document"]
registry = Registry().with_resource("urn:document", Resource(contents=document, specification=DRAFT202012))


def schema_at(*parts):
    pointer = "/".join(part.replace("~", "~0").replace("/", "~1") for part in parts)
    return Draft202012Validator({"$ref": f"urn:document#/{pointer}"}, registry=registry, format_checker=Draft202012Validator.FORMAT_CHECKER)


def differs(validator, value):
    for error in validator.iter_errors(value):
        return f"{error.json_path}: {error.message[:300]}"
    return None


compared = 0
for one in given["exchanges"]:
    name = f"{one['method'].upper()} {one['template']} {one['status']}"
    operation = document["paths"][one["template"]][one["method"]]
    at = ("paths", one["template"], one["method"])
    if one["asked"] is not None:
        kind = "application/json"
        wrong = differs(schema_at(*at, "requestBody", "content", kind, "schema"), one["asked"])
        if wrong:
            print(f"{name}, what was asked: {wrong}")
    response = operation["responses"].get(str(one["status"]))
    if response is None or one["kind"] not in response["content"]:
        print(f"{name} with {one['kind']} is not in the document")
        continue
    validator = schema_at(*at, "responses", str(one["status"]), "content", one["kind"], "schema")
    wrong = differs(validator, one["answer"])
    if wrong:
        print(f"{name}: {wrong}")
    # A member that the document does not name must be found, wherever the answer is an object of ours.
    if isinstance(one["answer"], dict) and one["template"] not in ("/openapi.json", "/schemas/app.json"):
        stray = copy.deepcopy(one["answer"])
        stray["stray"] = 1
        if not differs(validator, stray):
            print(f"{name}: any member would do")
    compared += 1
print(f"compared {compared}")

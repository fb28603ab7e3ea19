#!/usr/bin/env python3
"""Encodes Perfetto's hand-written examples: textproto.py FILE.textproto OUT.pftrace ...

The classes are those of Python's package `perfetto`. Some examples use extensions that the package
has not; those are declared here, with the fields that the examples use.
"""
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

FIELD = descriptor_pb2.FieldDescriptorProto
TEXT, NUMBER, MESSAGE = FIELD.TYPE_STRING, FIELD.TYPE_UINT64, FIELD.TYPE_MESSAGE


def message(file, called, /, **fields):
    """Adds a message; fields are (number, type), or (number, message name) for repeated ones."""
    new = file.message_type.add(name=called)
    for field, (number, kind) in fields.items():
        if isinstance(kind, str):
            new.field.add(
                name=field, number=number, type=MESSAGE, label=FIELD.LABEL_REPEATED, type_name=kind
            )
        else:
            many = FIELD.LABEL_REPEATED if field.endswith("_ids") else FIELD.LABEL_OPTIONAL
            new.field.add(name=field, number=number, type=kind, label=many)
    return new


def extend(message, extendee, /, **fields):
    for field, (number, kind, label) in fields.items():
        message.extension.add(
            name=field, number=number, type=MESSAGE, label=label, type_name=kind, extendee=extendee
        )


def declare():
    """What Perfetto declares in gpu_interned_data.proto and gpu_track_event.proto."""
    us = ".perfetto.protos."
    file = descriptor_pb2.FileDescriptorProto(
        name="examples.proto", package="perfetto.protos", syntax="proto2"
    )
    file.dependency.append(pb.DESCRIPTOR.name)
    message(file, "ArgOfKernel", name_iid=(1, NUMBER), uint_value=(4, NUMBER))
    message(file, "NameOfArg", iid=(1, NUMBER), name=(2, TEXT))
    message(
        file,
        "Kernel",
        iid=(1, NUMBER),
        name=(2, TEXT),
        demangled_name=(3, TEXT),
        arch=(4, TEXT),
        args=(5, us + "ArgOfKernel"),
    )
    message(
        file,
        "Correlation",
        render_stage_submission_event_ids=(1, NUMBER),
        render_stage_wait_event_ids=(2, NUMBER),
    )
    extend(
        message(file, "GpuInternedData"),
        us + "InternedData",
        compute_kernels=(1000, us + "Kernel", FIELD.LABEL_REPEATED),
        compute_arg_names=(1001, us + "NameOfArg", FIELD.LABEL_REPEATED),
    )
    extend(
        message(file, "GpuTrackEvent"),
        us + "TrackEvent",
        gpu_correlation=(3000, us + "Correlation", FIELD.LABEL_OPTIONAL),
    )
    pool = descriptor_pool.Default()
    pool.Add(file)
    message_factory.GetMessageClassesForFiles([file.name], pool)


declare()
for source, target in zip(sys.argv[1::2], sys.argv[2::2]):
    with open(source) as file, open(target, "wb") as out:
        out.write(text_format.Parse(file.read(), pb.Trace()).SerializeToString())

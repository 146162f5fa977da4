"""Reads what a deploy says of scaling besides the options of its deployments. Pure."""

from __future__ import annotations

import json

from pyserve.config import AutoscalingPolicy, DeploymentOptions
from pyserve.errors import OptionError, UsageError
from pyserve.wire.v1 import control_pb2


def read_policy(request: control_pb2.DeployRequest) -> AutoscalingPolicy | None:
    """Return the policy that decides for the whole application, if there is one.

    Raises:
        OptionError: It cannot be one.
        UsageError: An external scaler decides, and a policy or an ``autoscaling_config`` too.
    """
    text = request.autoscaling_policy_json
    if request.external_scaler_enabled:
        scaled = [
            spec.name
            for spec in request.deployments
            if DeploymentOptions.from_peer(spec.options_json).scaling is not None
        ]
        if text or scaled:
            who = f"deployment {scaled[0]!r} has an" if scaled else "the application has an"
            what = "autoscaling_config" if scaled else "autoscaling_policy"
            raise UsageError(
                f"external_scaler_enabled: {who} {what}, and only one of both can decide how many "
                "replicas there are; leave one out"
            )
    if not text:
        return None
    try:
        policy = AutoscalingPolicy.of("autoscaling_policy", json.loads(text))
    except json.JSONDecodeError as error:
        raise OptionError(f"autoscaling_policy is not JSON: {error}") from error
    if not policy.policy_function:
        raise OptionError("autoscaling_policy has no policy_function; give 'module:name'")
    return policy

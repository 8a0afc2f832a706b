"""Arithmetic, rotations and conversions of a few quaternions."""

import numpy as np
import quaternionic

PACKAGE = "quaternionic"


def run() -> None:
    q = quaternionic.array(np.arange(1.0, 9.0).reshape(2, 4))
    r = q.normalized
    q + r, q - r, q * r, q / r, -q, q.conjugate()
    np.exp(q), np.log(q), np.sqrt(q), np.abs(q)
    q.norm, r.to_rotation_matrix, r.to_euler_angles  # noqa: B018
    r.rotate(np.array([1.0, 0.0, 0.0]))
    quaternionic.array.from_rotation_vector(np.array([[0.1, 0.2, 0.3]]))
    quaternionic.distance.rotor.intrinsic(r, r)
    quaternionic.slerp(r[0], r[1], 0.5)
    quaternionic.squad(r, np.array([0.0, 1.0]), np.array([0.5]))

"""The model of the section `cluster.security:`. This module has only data classes."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr


class ClusterSecuritySection(BaseModel):
    """The section `cluster.security:`, for an existing cluster with TLS. Every key is optional."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ca: str | None = Field(
        default=None,
        min_length=1,
        description="the file with the CAs that sign the brokers' certificates, in PEM format, from"
        " the mill's folder. null: the CAs of this machine",
        examples=["ca.pem"],
    )
    user: str | None = Field(
        default=None,
        min_length=1,
        max_length=249,
        pattern=r"^[^\x00-\x1f\x7f]+$",
        description="the user as which the mill logs in (security protocol SASL_SSL). null: no"
        " login (SSL)",
        examples=["mill"],
    )
    password: SecretStr | None = Field(
        default=None,
        description="the password of this user; keep it out of the file by a reference. Parts read"
        " the file of a `${file:…}` again when they connect",
        examples=["${file:data/secrets/cluster}"],
    )
    mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256"] = Field(
        default="SCRAM-SHA-512",
        description="how the user logs in",
        examples=["SCRAM-SHA-256"],
    )
    _password_file: str | None = PrivateAttr(default=None)

    @property
    def password_file(self) -> str | None:
        """The file that the password is a reference to; None if it is not just `${file:…}`."""
        return self._password_file

    def note_password_file(self, path: str) -> None:
        """Store the file that the password was read from. Loading the file calls it."""
        self._password_file = path

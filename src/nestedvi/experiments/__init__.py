"""Tenth station: experiments. A frozen configuration and the assembly of library parts; no algorithm lives here."""
